#!/bin/bash
# After https://slurm.schedmd.com/sbatch.html
# finding: trap-waits 6
#SBATCH --signal=B:SIGTERM@60
#SBATCH --gres=gpu:1
trap 'echo "time is up"; touch STOP' SIGTERM
python train.py
