#!/bin/bash
#SBATCH --error=/x/%j_0_log.err
#SBATCH --gpus-per-node=8
#SBATCH --job-name=submitit
#SBATCH --mem=320GB
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --open-mode=append
#SBATCH --output=/x/%j_0_log.out
#SBATCH --signal=USR2@120
#SBATCH --time=60
#SBATCH --wckey=submitit
export SUBMITIT_EXECUTOR=slurm
srun --unbuffered --output /x/%j_%t_log.out --error /x/%j_%t_log.err /env/bin/python -u -m submitit.core._submit /x
# After https://github.com/Lightning-AI/pytorch-lightning/issues/20056
