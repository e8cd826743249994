#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
export MASTER_ADDR=$(hostname)
mpirun -np 8 -x MASTER_ADDR python train.py
# After https://slurm.schedmd.com/srun.html
