#!/bin/bash
# After https://github.com/huggingface/accelerate/blob/main/examples/slurm/submit_multinode.sh, which prints the command first
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=a100:4
#SBATCH --cpus-per-task=32
which torchrun python
ARGS="--nnodes $SLURM_NNODES"
ARGS+=" --nproc_per_node 4 --rdzv_backend c10d"
echo torchrun --master_port 29500
[[ -n "$DEBUG" ]] && ARGS+=" --tee 3"
CMD="$HOME/venv/bin/torchrun $ARGS --rdzv_endpoint $(hostname):$((10000 + SLURM_JOB_ID % 20000)) train.py"
echo $CMD
echo srun $CMD
srun --cpus-per-task="${SLURM_CPUS_PER_TASK:-8}" --export="$EXPORTS" $CMD
