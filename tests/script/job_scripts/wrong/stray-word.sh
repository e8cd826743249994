#!/bin/bash
# After https://github.com/VirtualFlow/VFVS/issues/47
# finding: stray-word 4
#SBATCH nodes=2
#SBATCH --gres=gpu:1
srun python train.py
