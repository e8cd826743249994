#!/bin/bash
# After https://slurm.schedmd.com/srun.html
# finding: srun-nodes 7
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
srun --nodes=1 --ntasks-per-node=4 python train.py
