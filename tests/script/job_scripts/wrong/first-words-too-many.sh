#!/bin/bash
#SBATCH --job-name=big model
#SBATCH --partition  gpu
#SBATCH --gpu-per-node=4
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --time=60
#SBATCH --open-mode=append
export SUBMITIT_EXECUTOR=slurm
srun --nodes=1 --ntasks-per-node=1 --kill-on-bad-exit=1 python train.py
# finding: stray-word 2
# finding: odd-character 3
# finding: unknown-option 4
# After https://github.com/GenomicsAotearoa/metagenomics_summer_school/issues/81
