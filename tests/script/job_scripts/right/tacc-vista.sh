#!/bin/bash
# After https://docs.tacc.utexas.edu/hpc/vista/#ml
#SBATCH -J train
#SBATCH -o train.o%j
#SBATCH -p gh
#SBATCH -N 4
#SBATCH -n 4
#SBATCH -t 01:00:00
#SBATCH -A TACC-1

module load gcc cuda python3
source $SCRATCH/python-envs/test/bin/activate
ibrun -np 4 python3 train.py --nodes 4
