#!/bin/bash
# After https://github.com/Lightning-AI/pytorch-lightning/issues/18650 (python instead of srun python)
# finding: no-srun 8
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
source activate env
python train.py --num_nodes 2 --devices 4
