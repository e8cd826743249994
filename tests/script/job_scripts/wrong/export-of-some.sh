#!/bin/bash
# After https://slurm.schedmd.com/srun.html
# finding: export 8
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --export=OMP_NUM_THREADS=8,NCCL_DEBUG=WARN python train.py
