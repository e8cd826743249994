#!/bin/bash
# n01-g8-b128-aeb148e2bfc7 on lumi-g: 1 node x 8 ranks, resnet50 on synthetic-imagenet
#SBATCH --job-name=n01-g8-b128-aeb148e2bfc7
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --gpus-per-node=8
#SBATCH --mem=491520M
#SBATCH --exclusive
#SBATCH --time=30
#SBATCH --account=project_465000001
#SBATCH --partition=standard-g
#SBATCH --open-mode=append

fail() { echo "hpcddp: $1" >&2; exit "${2:-1}"; }

module use /appl/local/laifs/modules ||
  fail "this line of the job script failed with status $?: "'module use /appl/local/laifs/modules'
module load lumi-aif-singularity-bindings ||
  fail "this line of the job script failed with status $?: "'module load lumi-aif-singularity-bindings'

export OMP_NUM_THREADS=7 PYTHONUNBUFFERED=1 SUBMITIT_EXECUTOR=slurm SLURM_EXPORT_ENV=ALL

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
[ -n "$MASTER_ADDR" ] || fail "scontrol named no host for $SLURM_JOB_NODELIST"
export MASTER_ADDR MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000)) # below the ephemeral ports (32768)

# --- launch ---
srun --kill-on-bad-exit=1 --unbuffered --cpus-per-task=7 \
  --cpu-bind=mask_cpu:0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000 \
  --output=/runs/%j_%t.out --error=/runs/%j_%t.err \
  python3 -u /runs/.code/abc/bootstrap.py /runs/.jobs/x
rc=$?
exit "$rc"
