#!/bin/bash
# After https://docs.pytorch.org/docs/stable/distributed.html
# finding: master-addr 7
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --gres=gpu:2
export MASTER_ADDR=$SLURM_JOB_NODELIST
export MASTER_PORT=$((12000 + SLURM_JOB_ID % 1000))
srun python train.py
