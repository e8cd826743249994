#!/bin/bash
# After https://stackoverflow.com/questions/62298553 (Invalid directive found in batch script)
# finding: stray-word 4
#SBATCH nodes=2
#SBATCH --gres=gpu:1
srun python train.py
