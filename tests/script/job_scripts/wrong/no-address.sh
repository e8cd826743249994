#!/bin/bash
# After https://github.com/princeton-nlp/ProLong/issues/9 (RendezvousTimeoutError)
# finding: rendezvous 8
#SBATCH --gpus-per-node=4
#SBATCH --nodes=2
#SBATCH -c 16
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes=2 --nproc_per_node=4 train.py
