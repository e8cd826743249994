#!/bin/bash
# After https://github.com/stas00/ml-engineering/blob/master/orchestration/slurm/launchers/lightning-launcher.slurm
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8 # as many as GPUs
#SBATCH --cpus-per-task=12
#SBATCH --gres=gpu:8
#SBATCH --time=0:10:00
#SBATCH --exclusive
set -eo pipefail
LAUNCHER="python -u"
PROGRAM="torch-distributed-gpu-test.py"
export CMD="$LAUNCHER $PROGRAM"
SRUN_ARGS=" --wait=60 --kill-on-bad-exit=1 --jobid $SLURM_JOB_ID "
srun $SRUN_ARGS bash -c "$CMD" 2>&1 | tee -a main_log.txt
