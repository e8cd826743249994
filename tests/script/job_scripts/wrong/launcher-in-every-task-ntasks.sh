#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks=8
#SBATCH --gpus-per-node=4
head=$(hostname)
srun torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint $head:$((10000+SLURM_JOB_ID%20000)) train.py
# finding: launcher-in-every-task 6
# After https://github.com/TRI-ML/prismatic-vlms/issues/39
