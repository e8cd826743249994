#!/bin/bash
# After https://github.com/pytorch/torchtitan/blob/main/multinode_trainer.slurm, with a path in front and arguments that grow
# finding: nnodes 9
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
ARGS="--nproc_per_node 8 --rdzv_backend c10d"
ARGS+=" --nnodes 2 --rdzv_endpoint $(hostname):$((10000 + SLURM_JOB_ID % 20000))"
srun --cpus-per-task="${SLURM_CPUS_PER_TASK:-8}" $SCRATCH/venv/bin/torchrun $ARGS train.py
