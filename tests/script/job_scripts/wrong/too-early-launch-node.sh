#!/bin/bash
# After https://github.com/mlc-ai/pith-train/pull/47 (SLURM_LAUNCH_NODE_IPADDR), filled in by the script
# finding: too-early 8
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
srun torchrun --nnodes=$SLURM_NNODES --nproc-per-node=gpu --rdzv-backend=c10d --rdzv-endpoint=$SLURM_LAUNCH_NODE_IPADDR:15213 train.py
