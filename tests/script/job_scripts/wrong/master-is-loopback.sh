#!/bin/bash
# After https://github.com/mlc-ai/pith-train/pull/91 (each node rendezvoused with itself)
# finding: master-addr 8
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
srun torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:29500 train.py
