#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
head=$(hostname)
export head
srun bash -c 'torchrun --nnodes=2 --nproc_per_node=8 --rdzv_id=$RANDOM --rdzv_backend=c10d --rdzv_endpoint=$head:$((10000+SLURM_JOB_ID%20000)) train.py'
# finding: random-in-step 7
# After https://github.com/pytorch/pytorch/issues/76069
