#!/bin/bash
# After https://slurm.schedmd.com/sbatch.html
# finding: no-wait 9
#SBATCH --nodes=1
#SBATCH --ntasks=2
#SBATCH --gres=gpu:2
#SBATCH --cpus-per-task=4
srun --ntasks=1 --gres=gpu:1 --exact python train.py --seed 1 &
srun --ntasks=1 --gres=gpu:1 --exact python train.py --seed 2 &
