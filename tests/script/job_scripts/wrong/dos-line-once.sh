#!/bin/bash
# After https://stackoverflow.com/questions/43700465 (pasted in)
# finding: dos-lines 5
#SBATCH --nodes=1
#SBATCH --gres=gpu:1
srun python train.py
