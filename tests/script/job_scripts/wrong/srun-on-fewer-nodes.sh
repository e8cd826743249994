#!/bin/bash
# After https://github.com/nebius/nebius-solutions-library/issues/177, with the first step's options
# finding: nnodes 9
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
head=$(hostname)
srun --nodes=1 torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint "$head:29500" train.py
