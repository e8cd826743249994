#!/bin/bash
# After https://github.com/pytorch/pytorch/issues/37428 (node_rank of each)
# finding: rendezvous 8
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun python -m torch.distributed.launch --nnodes=2 --nproc_per_node=4 --master_addr=$head --master_port=$((10000 + SLURM_JOB_ID % 20000)) train.py
