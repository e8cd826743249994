#!/bin/bash
# n04-g4-b128-ad9c95b85c26 on jean-zay: 4 nodes x 4 ranks, resnet50 on synthetic-imagenet
#SBATCH --job-name=n04-g4-b128-ad9c95b85c26
#SBATCH --nodes=4
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

for init in /etc/profile.d/modules.sh /usr/share/Modules/init/bash /usr/share/lmod/lmod/init/bash; do
  # shellcheck disable=SC1090
  if ! type module >/dev/null 2>&1 && [ -r "$init" ]; then . "$init"; fi
done
type module >/dev/null 2>&1 || fail "this node has no \`module\` command. Set module_init in the profile."
checked module load arch/h100
checked module load pytorch-gpu/py3/2.8.0

export OMP_NUM_THREADS=24 PYTHONUNBUFFERED=1 SUBMITIT_EXECUTOR=slurm SLURM_EXPORT_ENV=ALL

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
[ -n "$MASTER_ADDR" ] || fail "scontrol named no host for $SLURM_JOB_NODELIST"
export MASTER_ADDR MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000)) # below the ephemeral ports (32768)

# --- launch ---
srun --kill-on-bad-exit=1 --unbuffered --cpus-per-task=24 \
  --output=/runs/%j_%t.out --error=/runs/%j_%t.err \
  python3 -u /runs/.code/abc/bootstrap.py /runs/.jobs/x
rc=$?
exit "$rc"
