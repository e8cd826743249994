#!/bin/bash
# After https://docs.nersc.gov/machinelearning/pytorch/
#SBATCH -C gpu
#SBATCH -A m1234_g
#SBATCH -q regular
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --gpus-per-node=4
#SBATCH --time=01:00:00

module load pytorch/2.6.0
export MASTER_ADDR=$(hostname)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
srun -l bash -c "
    source export_DDP_vars.sh
    python train.py -d nccl --rank-gpu
    "
