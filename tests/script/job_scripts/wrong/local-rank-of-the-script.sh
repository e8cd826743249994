#!/bin/bash
# After https://docs.pytorch.org/docs/stable/elastic/run.html
# finding: too-early 7
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
export RANK=${SLURM_PROCID} WORLD_SIZE=$SLURM_NTASKS
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun python3 train.py
