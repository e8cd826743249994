#!/bin/bash
# After https://github.com/NVIDIA/NeMo-Framework-Launcher/tree/master/csp_tools/aws: sbatch --nodes=2 nodes-of-the-command-line.sh
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
srun --nodes=2 torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint "$(hostname):29500" train.py
