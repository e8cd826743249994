#!/bin/bash
# After https://slurm.schedmd.com/sbatch.html
# finding: stray-word 4
#SBATCH --nodes = 1
#SBATCH --gres=gpu:1
srun python train.py
