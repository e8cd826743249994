#!/bin/bash
# After https://github.com/aws/aws-parallelcluster/issues/3809
# finding: late-option 6
#SBATCH --ntasks-per-node=4
module load cuda
#SBATCH --gres=gpu:4
srun python train.py
