#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
ARGS=(
  --nnodes "$SLURM_NNODES"  # nodes
  --nproc_per_node 4
  --rdzv_backend c10d
  --rdzv_endpoint "$(hostname):$((20000 + SLURM_JOB_ID % 100))"
)
srun torchrun "${ARGS[@]}" train.py
# finding: idle-gpus 11
# After https://docs.pytorch.org/docs/stable/elastic/run.html
