#!/bin/bash -l
# After https://lightning.ai/docs/pytorch/stable/clouds/cluster_advanced.html

#SBATCH --nodes=4             # This needs to match Trainer(num_nodes=...)
#SBATCH --gres=gpu:8
#SBATCH --ntasks-per-node=8   # This needs to match Trainer(devices=...)
#SBATCH --mem=0
#SBATCH --time=0-02:00:00
#SBATCH --signal=SIGUSR1@90

source activate $1
export NCCL_DEBUG=INFO
export PYTHONFAULTHANDLER=1
# export NCCL_SOCKET_IFNAME=^docker0,lo

srun python3 train.py
