#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:4
#SBATCH --time=60
#SBATCH --open-mode=append
export SUBMITIT_EXECUTOR=slurm
srun --nodes=2 --ntasks-per-node=8 --cpus-per-task=8 --kill-on-bad-exit=1 python train.py
# finding: two-ranks-a-gpu 9
# After https://github.com/clessig/atmorep/issues/77
