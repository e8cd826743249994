#!/bin/bash
# After https://slurm.schedmd.com/gres.html (one where no number is given)
# finding: two-ranks-a-gpu 6
#SBATCH --nodes=1 --ntasks-per-node=2
#SBATCH --gres=gpu:a100
srun python train.py
