#!/bin/bash
# After https://github.com/earthlab/rslurm/issues/84
# finding: dos-lines 5
#SBATCH --nodes=1
#SBATCH --gres=gpu:1
srun python train.py
