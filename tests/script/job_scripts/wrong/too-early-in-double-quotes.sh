#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
srun bash -c "RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID python train.py"
# finding: too-early 5
# After https://github.com/huggingface/accelerate/issues/2816
