#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
srun torchrun --nnodes=2:4 --nproc-per-node=8 --max-restarts=3 --rdzv-id=$SLURM_JOB_ID --rdzv-backend=c10d --rdzv-endpoint="$(hostname):29400" train.py
# After https://docs.pytorch.org/docs/stable/elastic/run.html
