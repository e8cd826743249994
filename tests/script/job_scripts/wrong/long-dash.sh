#!/bin/bash
# After https://slurm.schedmd.com/sbatch.html
# finding: odd-character 4
#SBATCH –-nodes=2
#SBATCH --gres=gpu:1
srun hostname
