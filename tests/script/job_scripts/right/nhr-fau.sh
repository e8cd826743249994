#!/bin/bash -l
# After https://doc.nhr.fau.de/apps/pytorch/
#SBATCH --job-name=ddp
#SBATCH --gres=gpu:a100:8
#SBATCH --partition=a100
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=6:0:0
#SBATCH --export=NONE

unset SLURM_EXPORT_ENV

module load python/3.10-anaconda
source activate pytorch-env
master=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)
srun torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-id=$SLURM_JOB_ID --rdzv-endpoint=$master:$(( 20000 + SLURM_JOB_ID % 10000 )) train.py
