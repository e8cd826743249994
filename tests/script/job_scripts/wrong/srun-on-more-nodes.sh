#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
srun --nodes=2 --ntasks-per-node=4 python train.py
# finding: srun-size 5
# After https://slurm.schedmd.com/srun.html
