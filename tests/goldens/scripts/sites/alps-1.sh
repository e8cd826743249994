#!/bin/bash
# n01-g4-b256-48cc8e979382 on alps: 1 node x 4 ranks, resnet50 on synthetic-imagenet
#SBATCH --job-name=n01-g4-b256-48cc8e979382
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=72
#SBATCH --mem=460800M
#SBATCH --exclusive
#SBATCH --time=30
#SBATCH --account=proj
#SBATCH --partition=normal
#SBATCH --open-mode=append
#SBATCH --uenv=pytorch/v2.8.0:/user-environment
#SBATCH --view=default

fail() { echo "hpcddp: $1" >&2; exit "${2:-1}"; }

export OMP_NUM_THREADS=72 PYTHONUNBUFFERED=1 SUBMITIT_EXECUTOR=slurm SLURM_EXPORT_ENV=ALL
export CUDA_CACHE_DISABLE=1
export MPICH_GPU_SUPPORT_ENABLED=0

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
[ -n "$MASTER_ADDR" ] || fail "scontrol named no host for $SLURM_JOB_NODELIST"
export MASTER_ADDR MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000)) # below the ephemeral ports (32768)

# --- launch ---
srun --kill-on-bad-exit=1 --unbuffered --cpus-per-task=72 \
  --output=/runs/%j_%t.out --error=/runs/%j_%t.err \
  python3 -u /runs/.code/abc/bootstrap.py /runs/.jobs/x
rc=$?
exit "$rc"
