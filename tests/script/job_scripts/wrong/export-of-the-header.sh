#!/bin/bash
# After https://stackoverflow.com/questions/36279200 (--export of sbatch)
# finding: export 8
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --export=WANDB_MODE=offline
srun python train.py
