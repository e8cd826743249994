#!/bin/bash
# After https://slurm.schedmd.com/sbatch.html
# finding: odd-character 4
#SBATCH --job-name=“my job”
#SBATCH --gres=gpu:1
srun hostname
