#!/bin/bash
# After https://github.com/pytorch/pytorch/issues/76069 (each node acts as rendezvous point)
# finding: master-addr 7
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:1
srun bash -c 'export MASTER_ADDR=$(hostname) MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000)); python train.py'
