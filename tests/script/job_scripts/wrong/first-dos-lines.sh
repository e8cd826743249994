#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --time=60
#SBATCH --open-mode=append
export SUBMITIT_EXECUTOR=slurm
srun --nodes=1 --ntasks-per-node=1 --kill-on-bad-exit=1 python train.py
# finding: dos-lines 1
# After https://github.com/earthlab/rslurm/issues/84
