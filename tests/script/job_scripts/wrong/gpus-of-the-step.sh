#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
srun --gres=gpu:1 python train.py
# finding: two-ranks-a-gpu 5
# After https://github.com/clessig/atmorep/issues/77
