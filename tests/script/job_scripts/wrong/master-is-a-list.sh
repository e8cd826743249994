#!/bin/bash
# After https://stackoverflow.com/questions/70868443 (MASTER_ADDR=node[01-02])
# finding: master-addr 7
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --gres=gpu:2
export MASTER_ADDR=$SLURM_JOB_NODELIST
export MASTER_PORT=$((12000 + SLURM_JOB_ID % 1000))
srun python train.py
