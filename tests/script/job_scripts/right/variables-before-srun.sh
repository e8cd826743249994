#!/bin/bash
#SBATCH --nodes=1 --ntasks=4 --gres=gpu:4
#SBATCH --cpus-per-task=8
MASTER_ADDR=localhost MASTER_PORT=$((10000 + SLURM_JOB_ID % 9999)) srun --export=ALL,OMP_NUM_THREADS=8 python train.py
# After https://slurm.schedmd.com/srun.html
