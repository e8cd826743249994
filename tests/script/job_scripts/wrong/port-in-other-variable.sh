#!/bin/bash
# After https://github.com/EleutherAI/gpt-neox/issues/768
# finding: fixed-port 7
#SBATCH --nodes=1
#SBATCH --gres=gpu:2
PORT=${PORT:-29500}
torchrun --master_port=$PORT --nproc_per_node=2 train.py
