#!/bin/bash
# After https://github.com/huggingface/accelerate/issues/2816
# finding: no-srun 9
#SBATCH -N 4
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:2
#SBATCH --exclusive
host=$(hostname)
torchrun --nnodes=4 --nproc_per_node=2 --rdzv_id=7 --rdzv_backend=c10d --rdzv_endpoint=$host:29400 train.py
