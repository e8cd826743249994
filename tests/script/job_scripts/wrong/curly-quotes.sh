#!/bin/bash
# After https://stackoverflow.com/questions/74164136
# finding: odd-character 4
#SBATCH --job-name=“my job”
#SBATCH --gres=gpu:1
srun hostname
