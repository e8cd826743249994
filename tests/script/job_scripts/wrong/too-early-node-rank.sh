#!/bin/bash
# After https://github.com/pytorch/pytorch/issues/73656 ($SLURM_PROCID is expanded too early)
# finding: too-early 10
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
#SBATCH --exclusive
MASTER=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
NODE_RANK=$SLURM_NODEID
srun torchrun --nnodes=2 --nproc_per_node=4 --node_rank=$NODE_RANK --master_addr=$MASTER --master_port=29500 train.py
