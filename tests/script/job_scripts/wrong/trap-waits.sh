#!/bin/bash
# After https://slurm.schedmd.com/sbatch.html
# finding: trap-waits 10
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
requeue() { scontrol requeue "$SLURM_JOB_ID"; }
trap requeue USR1
srun python train.py
