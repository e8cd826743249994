#!/bin/bash
# After https://slurm.schedmd.com/srun.html
# finding: srun-size 7
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
srun --cpus-per-task=32 python train.py
