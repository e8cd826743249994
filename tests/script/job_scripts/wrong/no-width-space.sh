#!/bin/bash
#SBATCH --nodes=​1
#SBATCH --gres=gpu:4
python train.py
# finding: odd-character 2
# After https://slurm.schedmd.com/sbatch.html
