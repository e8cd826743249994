#!/bin/bash
# After https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
# finding: NCCL_IB_DISABLE 7
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
export NCCL_IB_DISABLE=1
srun python train.py
