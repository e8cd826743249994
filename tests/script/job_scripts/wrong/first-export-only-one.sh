#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:4
#SBATCH --time=60
#SBATCH --open-mode=append
export SUBMITIT_EXECUTOR=slurm
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR
srun --export=MASTER_PORT --nodes=2 --ntasks-per-node=4 --cpus-per-task=8 --kill-on-bad-exit=1 python train.py
# finding: export 11
# After https://slurm.schedmd.com/srun.html
