#!/bin/bash
# After https://github.com/neu-spiral/Discovery-Cluster/issues/14
# finding: stray-word 4
#SBATCH --time=01:00:00 one hour
#SBATCH --gres=gpu:1
srun python train.py
