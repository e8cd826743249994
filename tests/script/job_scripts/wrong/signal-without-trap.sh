#!/bin/bash
# After https://github.com/VectorInstitute/FL4Health/pull/155
# finding: signal-batch 6
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --signal=B:USR1@90
#SBATCH --gres=gpu:2
srun python train.py
