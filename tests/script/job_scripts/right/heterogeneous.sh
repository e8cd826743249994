#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:4
#SBATCH hetjob
#SBATCH --nodes=2 --gres=gpu:8
srun --het-group=0,1 python train.py
# After https://slurm.schedmd.com/heterogeneous_jobs.html
