#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
srun bash -c 'torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=`hostname`:$((10000+SLURM_JOB_ID%20000)) train.py'
# finding: master-addr 5
# After https://github.com/mlc-ai/pith-train/pull/91
