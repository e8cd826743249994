#!/bin/bash
# After https://slurm.schedmd.com/sbatch.html
# finding: export 9
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --export=NONE
module load python
srun python train.py
