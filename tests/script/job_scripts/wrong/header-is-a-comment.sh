#!/bin/bash
# After https://slurm.schedmd.com/sbatch.html
# finding: no-directive 4
# SBATCH --nodes=1
# SBATCH --gres=gpu:4
srun python train.py
