#!/bin/bash
# After https://slurm.schedmd.com/rosetta.html
# finding: unknown-option 4
#SBATCH --walltime=01:00:00
#SBATCH --gres=gpu:4
srun python train.py
