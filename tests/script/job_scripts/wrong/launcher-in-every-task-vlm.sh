#!/bin/bash
# After https://github.com/TRI-ML/prismatic-vlms/issues/39 (Duplicate GPU detected)
# finding: launcher-in-every-task 14
#SBATCH --job-name=test
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
nodes=($(scontrol show hostnames $SLURM_JOB_NODELIST))
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "${nodes[0]}" hostname --ip-address)
export MASTER_PORT=29501
export LOGLEVEL=INFO

srun torchrun \
    --nnodes=$SLURM_NNODES \
    --nproc_per_node=$SLURM_NTASKS_PER_NODE \
    --rdzv_id=$RANDOM \
    --rdzv_backend=c10d \
    --rdzv_endpoint=$head_node_ip:$MASTER_PORT \
    scripts/pretrain.py
