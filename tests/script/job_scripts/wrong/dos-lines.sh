#!/bin/bash
# After https://github.com/earthlab/rslurm/issues/84
# finding: dos-lines 1
#SBATCH --nodes=1
#SBATCH --gres=gpu:1
python train.py
