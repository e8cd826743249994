#!/bin/bash
# After https://stackoverflow.com/questions/56962129
# finding: odd-character 4
#SBATCH --nodes=2
#SBATCH --gres=gpu:1
srun hostname
