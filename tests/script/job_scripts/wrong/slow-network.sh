#!/bin/bash
# After https://github.com/NVIDIA/nccl/issues/451 (NCCL_IB_DISABLE=1 copied from elsewhere)
# finding: NCCL_IB_DISABLE 7
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
export NCCL_IB_DISABLE=1
srun python train.py
