#!/bin/bash
# After https://github.com/VectorInstitute/FL4Health/pull/155
# finding: signal-steps 7
#SBATCH --nodes=1
#SBATCH --gres=gpu:1
#SBATCH --signal=USR2@60
trap 'scontrol requeue $SLURM_JOB_ID' SIGUSR2
srun python train.py &
wait
