#!/bin/bash
# After https://github.com/interTwin-eu/itwinai/issues/360
# finding: launcher-in-every-task 8
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --time=10:00
srun deepspeed --num_gpus=4 train.py --deepspeed ds.json
