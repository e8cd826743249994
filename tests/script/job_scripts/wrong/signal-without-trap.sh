#!/bin/bash
# After https://github.com/Lightning-AI/pytorch-lightning/issues/14782 (B: kills the script)
# finding: signal-batch 6
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --signal=B:USR1@90
#SBATCH --gres=gpu:2
srun python train.py
