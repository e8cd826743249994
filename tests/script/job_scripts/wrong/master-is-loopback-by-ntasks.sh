#!/bin/bash
#SBATCH --ntasks=8
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
export MASTER_ADDR="127.0.0.1"
srun python t.py
# finding: master-addr 5
# After https://github.com/mlc-ai/pith-train/pull/91
