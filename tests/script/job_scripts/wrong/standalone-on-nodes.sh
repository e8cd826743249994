#!/bin/bash
# After https://docs.pytorch.org/docs/stable/elastic/run.html
# finding: rendezvous 7
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
srun torchrun --standalone --nnodes=2 --nproc_per_node=4 train.py
