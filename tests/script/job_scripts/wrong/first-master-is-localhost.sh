#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:1
#SBATCH --time=15
#SBATCH --open-mode=append
export SUBMITIT_EXECUTOR=slurm
export MASTER_ADDR=localhost
export MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))
srun --nodes=4 --ntasks-per-node=1 --cpus-per-task=8 --kill-on-bad-exit=1 python train.py
# finding: master-addr 9
# After https://github.com/pytorch/pytorch/issues/76069
