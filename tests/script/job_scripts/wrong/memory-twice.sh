#!/bin/bash
# After https://slurm.schedmd.com/sbatch.html
# finding: exclusive-options 5
#SBATCH --mem=64G
#SBATCH --mem-per-cpu=4G
#SBATCH --gres=gpu:1
srun python train.py
