#!/bin/bash
# After https://docs.pytorch.org/docs/stable/elastic/run.html
# finding: idle-gpus 8
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
head=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
srun torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$head:$((10000 + SLURM_JOB_ID % 20000)) train.py
