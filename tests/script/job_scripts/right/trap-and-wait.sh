#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --signal=B:USR1@300
trap 'echo got it; scontrol requeue $SLURM_JOB_ID' USR1
srun bash -c '
  export RANK=$SLURM_PROCID
  export LOCAL_RANK=$SLURM_LOCALID
  python train.py
' &
wait $!
# After https://github.com/VectorInstitute/FL4Health/pull/155
