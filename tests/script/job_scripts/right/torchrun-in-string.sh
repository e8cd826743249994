#!/bin/bash
# After https://github.com/stas00/ml-engineering/blob/master/orchestration/slurm/launchers/torchrun-launcher.slurm
#SBATCH --job-name=torchrun-launcher
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1          # only 1 task per node
#SBATCH --cpus-per-task=96
#SBATCH --gres=gpu:8
#SBATCH --exclusive
#SBATCH --time=0:10:00

set -eo pipefail
GPUS_PER_NODE=8
NNODES=$SLURM_NNODES
MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
MASTER_PORT=6000

LAUNCHER="python -u -m torch.distributed.run \
    --nproc_per_node $GPUS_PER_NODE \
    --nnodes $NNODES \
    --rdzv_endpoint $MASTER_ADDR:$MASTER_PORT \
    --rdzv_backend c10d \
    --max_restarts 0 \
    --role `hostname -s`: \
    --tee 3 \
    "
PROGRAM="\
my_train_script.py \
"
export CMD="$LAUNCHER $PROGRAM"
SRUN_ARGS=" --wait=60 --kill-on-bad-exit=1 "
srun $SRUN_ARGS --jobid $SLURM_JOB_ID bash -c "$CMD" 2>&1 | tee -a main_log.txt
