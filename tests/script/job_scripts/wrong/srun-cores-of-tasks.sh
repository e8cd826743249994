#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:4
srun --ntasks=4 --cpus-per-task=8 python train.py
# finding: srun-size 6
# After https://slurm.schedmd.com/srun.html
