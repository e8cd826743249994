#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
timeout 3h srun python train.py || { echo failed; exit 1; }
# After https://slurm.schedmd.com/srun.html
