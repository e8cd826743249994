#!/bin/bash
# After https://docs.pytorch.org/docs/stable/elastic/run.html
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
export PET_NNODES=$SLURM_NNODES PET_NPROC_PER_NODE=4 PET_RDZV_BACKEND=c10d PET_RDZV_ID=$SLURM_JOB_ID
export PET_RDZV_ENDPOINT="$(hostname):$((10000 + SLURM_JOB_ID % 20000))"
srun torchrun train.py
