#!/bin/bash
# After https://docs.olcf.ornl.gov/software/analytics/pytorch_frontier.html
#SBATCH -A abc123
#SBATCH -J ddp
#SBATCH -o logs/%x-%j.out
#SBATCH -p batch
#SBATCH -t 00:10:00
#SBATCH -N 2
#SBATCH -S 0

unset SLURM_EXPORT_ENV
module load PrgEnv-gnu/8.5.0 rocm/6.1.3
source activate /lustre/orion/abc123/env
export MASTER_ADDR=$(ip -f inet addr show hsn0 | sed -En -e 's/.*inet ([0-9.]+).*/\1/p' | head -1)
export MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))
time srun -N2 -n16 -c7 --gpus-per-task=1 --gpu-bind=closest python3 -W ignore -u ./train.py --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT
