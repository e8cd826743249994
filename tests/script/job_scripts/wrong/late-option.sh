#!/bin/bash
# After https://stackoverflow.com/questions/60189949 (#SBATCH below a command is ignored)
# finding: late-option 6
#SBATCH --ntasks-per-node=4
module load cuda
#SBATCH --gres=gpu:4
srun python train.py
