#!/bin/bash
# After https://github.com/clessig/atmorep/issues/77 (Duplicate GPU detected)
# finding: two-ranks-a-gpu 7
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:v100:2
srun torchrun --standalone --nproc_per_node=4 train.py
