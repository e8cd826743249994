#!/bin/bash
# After https://stackoverflow.com/questions/67091056 (--gpus counts those of the job)
# finding: two-ranks-a-gpu 8
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus=4
#SBATCH --cpus-per-task=8
srun python train.py
