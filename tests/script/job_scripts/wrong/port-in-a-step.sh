#!/bin/bash
# After https://github.com/facebookresearch/XLM/issues/53
# finding: fixed-port 7
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
srun bash -c 'export MASTER_PORT=12355; exec python train.py'
