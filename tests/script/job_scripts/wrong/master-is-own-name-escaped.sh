#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
srun bash -c "export MASTER_ADDR=\$(hostname -s); export MASTER_PORT=$((10000+SLURM_JOB_ID%20000)); python train.py"
# finding: master-addr 5
# After https://github.com/pytorch/pytorch/issues/76069
