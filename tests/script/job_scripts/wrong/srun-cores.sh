#!/bin/bash
# After https://support.schedmd.com (More processors requested than permitted)
# finding: srun-cpus 7
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
srun --cpus-per-task=32 python train.py
