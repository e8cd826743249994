#!/bin/bash
# After https://bugs.schedmd.com/show_bug.cgi?id=9005 (--signal without B:)
# finding: signal-steps 7
#SBATCH --nodes=1
#SBATCH --gres=gpu:1
#SBATCH --signal=USR2@60
trap 'scontrol requeue $SLURM_JOB_ID' SIGUSR2
srun python train.py &
wait
