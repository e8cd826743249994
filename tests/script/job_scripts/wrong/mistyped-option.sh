#!/bin/bash
# After https://stackoverflow.com/questions/73031187 (unrecognized option)
# finding: unknown-option 4
#SBATCH --ntask-per-node=4
#SBATCH --gres=gpu:4
srun python train.py
