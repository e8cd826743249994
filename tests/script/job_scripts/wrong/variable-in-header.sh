#!/bin/bash
# After https://slurm.schedmd.com/sbatch.html
# finding: variable-in-header 4
#SBATCH --output=$HOME/logs/%j.out
#SBATCH --gres=gpu:4
srun python train.py
