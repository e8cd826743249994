#!/bin/bash
# After https://github.com/interTwin-eu/itwinai/issues/360
# finding: launcher-in-every-task 7
#SBATCH -N 1
#SBATCH -n 4
#SBATCH --gpus=4
srun python -m torch.distributed.run --standalone --nproc-per-node=4 train.py
