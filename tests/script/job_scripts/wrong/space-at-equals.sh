#!/bin/bash
# After https://stackoverflow.com/questions/71904083 (spaces at the equals sign)
# finding: stray-word 4
#SBATCH --nodes = 1
#SBATCH --gres=gpu:1
srun python train.py
