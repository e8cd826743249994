#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:4
#SBATCH --time=60
#SBATCH --open-mode=append
export SUBMITIT_EXECUTOR=slurm
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --nodes=2 --ntasks-per-node=4 --cpus-per-task=8 --kill-on-bad-exit=1 torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint="$head:$((10000 + SLURM_JOB_ID % 20000))" --rdzv_id="$SLURM_JOB_ID" train.py
# finding: launcher-in-every-task 10
# After https://github.com/TRI-ML/prismatic-vlms/issues/39
