#!/bin/bash
# After https://slurm.schedmd.com/srun.html
# finding: srun-ntasks 8
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
export MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))
srun -N 2 -n 4 python train.py
