#!/bin/bash
# After https://github.com/pytorch/torchtitan/blob/main/multinode_trainer.slurm, with only the header changed
# finding: nnodes 9
#SBATCH --ntasks=8
#SBATCH --nodes=8
#SBATCH --gpus-per-task=8
#SBATCH --exclusive
head=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
srun torchrun --nnodes 4 --nproc_per_node 8 --rdzv_id 101 --rdzv_backend c10d --rdzv_endpoint "$head:29500" ./train.py
