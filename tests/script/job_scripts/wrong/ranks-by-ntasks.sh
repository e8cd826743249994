#!/bin/bash
# After https://github.com/Lightning-AI/pytorch-lightning/issues/6169 (You requested GPUs: [0, 1])
# finding: two-ranks-a-gpu 8
#SBATCH --gres=gpu:p6000:1
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --mem=32GB
srun --unbuffered python slurm_test.py
