#!/bin/bash
# After https://slurm.schedmd.com/sbatch.html
# finding: unknown-option 5
#SBATCH --gres=gpu:4
#SBATCH --cpu-bind=none
#SBATCH --ntasks-per-node=4
srun python train.py
