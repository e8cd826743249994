#!/bin/bash
# n01-g4-b128-1764f6c63993 on leonardo: 1 node x 4 ranks, resnet50 on synthetic-imagenet
#SBATCH --job-name=n01-g4-b128-1764f6c63993
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:4
#SBATCH --mem=494000M
#SBATCH --exclusive
#SBATCH --time=30
#SBATCH --account=proj
#SBATCH --partition=boost_usr_prod
#SBATCH --open-mode=append

fail() { echo "hpcddp: $1" >&2; exit "${2:-1}"; }
checked() { "$@" || fail "this line of the job script failed with status $?: $*"; }

for init in /etc/profile.d/modules.sh /etc/profile.d/lmod.sh /usr/share/Modules/init/bash /usr/share/lmod/lmod/init/bash; do
  # shellcheck disable=SC1090
  if ! type module >/dev/null 2>&1 && [ -r "$init" ]; then . "$init"; fi
done
type module >/dev/null 2>&1 || fail "this node has no \`module\` command. Set module_init in the profile."
checked module load profile/deeplrn
checked module load cineca-ai

export OMP_NUM_THREADS=8 PYTHONUNBUFFERED=1 SUBMITIT_EXECUTOR=slurm SLURM_EXPORT_ENV=ALL

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
[ -n "$MASTER_ADDR" ] || fail "scontrol named no host for $SLURM_JOB_NODELIST"
export MASTER_ADDR MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000)) # below the ephemeral ports (32768)

# --- launch ---
srun --kill-on-bad-exit=1 --unbuffered --cpus-per-task=8 \
  --output=/runs/%j_%t.out --error=/runs/%j_%t.err \
  python3 -u /runs/.code/abc/bootstrap.py /runs/.jobs/x
rc=$?
exit "$rc"
