#!/bin/bash
# n01-g4-b128-efbc621d806a on jean-zay: 1 node x 4 ranks, resnet50 on synthetic-imagenet
#SBATCH --job-name=n01-g4-b128-efbc621d806a
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=24
#SBATCH --gres=gpu:4
#SBATCH --exclusive
#SBATCH --time=30
#SBATCH --account=abc@h100
#SBATCH --partition=gpu_p6
#SBATCH --constraint=h100
#SBATCH --open-mode=append
#SBATCH --hint=nomultithread

fail() { echo "hpcddp: $1" >&2; exit "${2:-1}"; }
checked() { "$@" || fail "this line of the job script failed with status $?: $*"; }

export OMP_NUM_THREADS=24
export PYTHONUNBUFFERED=1
export SUBMITIT_EXECUTOR=slurm
export SLURM_EXPORT_ENV=ALL

if ! type module >/dev/null 2>&1; then
  for init in /etc/profile.d/modules.sh /usr/share/Modules/init/bash /usr/share/lmod/lmod/init/bash; do
    # shellcheck disable=SC1090
    if [ -r "$init" ]; then . "$init"; break; fi
  done
fi
type module >/dev/null 2>&1 || fail "this node has no \`module\` command; the profile's module_init says where it is defined"
checked module load arch/h100
checked module load pytorch-gpu/py3/2.8.0

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
[ -n "$MASTER_ADDR" ] || fail "scontrol named no host for $SLURM_JOB_NODELIST"
export MASTER_ADDR

# --- launch ---
# The port is made inside the step from job and step id, and stays below the ephemeral range (32768).
# shellcheck disable=SC2016
srun --nodes=1 --ntasks-per-node=4 --cpus-per-task=24 \
  --kill-on-bad-exit=1 --unbuffered --output=/runs/%j_%t.out --error=/runs/%j_%t.err \
  bash -c 'export MASTER_PORT=$((10000 + (SLURM_JOB_ID + 1009 * SLURM_STEP_ID) % 20000)); exec "$@"' hpcddp \
  python3 -u /runs/.code/abc/bootstrap.py /runs/.jobs/x
rc=$?
# --- end of launch ---

exit "$rc"
