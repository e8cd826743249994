#!/bin/bash
# After https://slurm.schedmd.com/sbatch.html
# finding: no-wait 6
#SBATCH --nodes=1
#SBATCH --gres=gpu:2
nohup torchrun --standalone --nproc_per_node=2 train.py > log.txt 2>&1 &
