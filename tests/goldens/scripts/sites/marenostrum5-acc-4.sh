#!/bin/bash
# n04-g4-b128-90c5a34e602a on marenostrum5-acc: 4 nodes x 4 ranks, resnet50 on synthetic-imagenet
#SBATCH --job-name=n04-g4-b128-90c5a34e602a
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=20
#SBATCH --gres=gpu:4
#SBATCH --exclusive
#SBATCH --time=30
#SBATCH --account=proj
#SBATCH --partition=acc
#SBATCH --qos=acc_ehpc
#SBATCH --open-mode=append

fail() { echo "hpcddp: $1" >&2; exit "${2:-1}"; }

export OMP_NUM_THREADS=20 PYTHONUNBUFFERED=1 SUBMITIT_EXECUTOR=slurm SLURM_EXPORT_ENV=ALL

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
[ -n "$MASTER_ADDR" ] || fail "scontrol named no host for $SLURM_JOB_NODELIST"
export MASTER_ADDR MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000)) # below the ephemeral ports (32768)

# --- launch ---
srun --kill-on-bad-exit=1 --unbuffered --cpus-per-task=20 \
  --output=/runs/%j_%t.out --error=/runs/%j_%t.err \
  python3 -u /runs/.code/abc/bootstrap.py /runs/.jobs/x
rc=$?
exit "$rc"
