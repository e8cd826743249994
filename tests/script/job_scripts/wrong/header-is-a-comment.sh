#!/bin/bash
# After https://stackoverflow.com/questions/71452913 (# SBATCH)
# finding: no-directive 4
# SBATCH --nodes=1
# SBATCH --gres=gpu:4
srun python train.py
