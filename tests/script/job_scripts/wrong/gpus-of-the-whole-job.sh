#!/bin/bash
# After https://slurm.schedmd.com/sbatch.html
# finding: two-ranks-a-gpu 8
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus=4
#SBATCH --cpus-per-task=8
srun python train.py
