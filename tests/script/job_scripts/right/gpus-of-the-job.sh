#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus=8
#SBATCH --ntasks=8
#SBATCH --gpus-per-task=1
#SBATCH --gpu-bind=none
#SBATCH --cpus-per-task=16
export SLURM_CPU_BIND="cores"
srun shifter bash -c "source export_DDP_vars.sh && python train.py"
# After https://docs.nersc.gov/machinelearning/pytorch/
