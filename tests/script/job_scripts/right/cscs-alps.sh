#!/bin/bash
# After https://docs.cscs.ch/software/ml/pytorch/
#SBATCH --job-name=fsdp
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=72
#SBATCH --time=00:30:00
#SBATCH --output=logs/%x-%j.out
#SBATCH --uenv=pytorch/v2.6.0:/user-environment
#SBATCH --view=default

set -x
export OMP_NUM_THREADS=8
export MASTER_ADDR=$(hostname)
export MASTER_PORT=$((6000 + SLURM_JOB_ID % 1000))
export WORLD_SIZE=$SLURM_NPROCS
export FI_CXI_DEFAULT_CQ_SIZE=131072
source ./my-venv/bin/activate

srun bash -c "
    export RANK=\$SLURM_PROCID
    export LOCAL_RANK=\$SLURM_LOCALID
    numactl --cpunodebind=\$LOCAL_RANK --membind=\$LOCAL_RANK python train.py
"
