#!/bin/bash
# After https://docs.csc.fi/support/tutorials/ml-multi/
#SBATCH --account=<project>
#SBATCH --partition=gpu
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=40
#SBATCH --mem=320G
#SBATCH --time=1:00:00
#SBATCH --gres=gpu:v100:4

module purge
module load pytorch
RDZV_HOST=$(hostname)
RDZV_PORT=$((29400 + SLURM_JOB_ID % 1000))
srun apptainer_wrapper exec torchrun \
    --nnodes=$SLURM_JOB_NUM_NODES \
    --nproc_per_node=4 \
    --rdzv_id=$SLURM_JOB_ID \
    --rdzv_backend=c10d \
    --rdzv_endpoint=$RDZV_HOST:$RDZV_PORT \
    myprog.py
