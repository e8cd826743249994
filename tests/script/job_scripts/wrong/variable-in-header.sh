#!/bin/bash
# After https://stackoverflow.com/questions/36279200 (variables in #SBATCH)
# finding: variable-in-header 4
#SBATCH --output=$HOME/logs/%j.out
#SBATCH --gres=gpu:4
srun python train.py
