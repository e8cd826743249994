#!/bin/bash
# After https://slurm.schedmd.com/sbatch.html
# finding: unknown-option 4
#SBATCH --ntask-per-node=4
#SBATCH --gres=gpu:4
srun python train.py
