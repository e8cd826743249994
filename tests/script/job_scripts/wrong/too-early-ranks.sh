#!/bin/bash
# After https://github.com/TRI-ML/prismatic-vlms/issues/39
# finding: too-early 9
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))
export RANK=$SLURM_PROCID
export WORLD_SIZE=$SLURM_NTASKS
srun python train.py
