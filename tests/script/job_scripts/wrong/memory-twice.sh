#!/bin/bash
# After https://bugs.schedmd.com/show_bug.cgi?id=11749 (--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive)
# finding: exclusive-options 5
#SBATCH --mem=64G
#SBATCH --mem-per-cpu=4G
#SBATCH --gres=gpu:1
srun python train.py
