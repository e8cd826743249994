#!/bin/bash
# After https://github.com/Lightning-AI/pytorch-lightning/issues/10098 (hangs at distributed initialization)
# finding: srun-nodes 7
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
srun --nodes=1 --ntasks-per-node=4 python train.py
