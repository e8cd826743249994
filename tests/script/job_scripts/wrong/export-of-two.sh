#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
srun --export MASTER_ADDR,MASTER_PORT python train.py
# finding: export 5
# After https://slurm.schedmd.com/srun.html
