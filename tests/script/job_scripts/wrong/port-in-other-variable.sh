#!/bin/bash
# After https://discuss.pytorch.org/t/address-already-in-use-on-shared-nodes
# finding: fixed-port 7
#SBATCH --nodes=1
#SBATCH --gres=gpu:2
PORT=${PORT:-29500}
torchrun --master_port=$PORT --nproc_per_node=2 train.py
