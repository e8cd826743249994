#!/bin/bash
# After https://hpc.nmsu.edu/discovery/slurm (a comment without its sign)
# finding: stray-word 4
#SBATCH --time=01:00:00 one hour
#SBATCH --gres=gpu:1
srun python train.py
