#!/bin/bash
# After https://github.com/AMDResearch/hpcfund/issues/47 (rendez-vous ports)
# finding: fixed-port 9
#SBATCH -N 2
#SBATCH -n 2
#SBATCH --gres=gpu:4
export GPUS_PER_NODE=4
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=29500
export NCCL_DEBUG=INFO
srun torchrun --nnodes $SLURM_NNODES --nproc_per_node $GPUS_PER_NODE --rdzv_backend c10d --rdzv_endpoint "$MASTER_ADDR:$MASTER_PORT" --rdzv_id "$SLURM_JOB_ID" train.py
