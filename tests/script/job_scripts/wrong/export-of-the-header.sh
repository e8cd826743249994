#!/bin/bash
# After https://slurm.schedmd.com/sbatch.html
# finding: export 8
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --export=WANDB_MODE=offline
srun python train.py
