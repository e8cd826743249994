#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
head=$(hostname)
CMD="torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$head:$((10000 + SLURM_JOB_ID % 2000)) train.py"
eval "srun $CMD"
# After https://slurm.schedmd.com/srun.html
