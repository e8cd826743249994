#!/bin/bash
# After https://docs.pytorch.org/tutorials/beginner/ddp_series_multigpu.html (the program starts its ranks)
#SBATCH -p gpu
#SBATCH -N 1
#SBATCH -n 1
#SBATCH -c 32
#SBATCH -G 4
#SBATCH -t 120
module load cuda
srun python multigpu.py 50 10
