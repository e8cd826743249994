#!/bin/bash
# n04-g4-b512-0f76405ba86f on rcc: 4 nodes x 4 ranks, mnist-cnn on bigmnist
#SBATCH --job-name=n04-g4-b512-0f76405ba86f
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=12
#SBATCH --gres=gpu:v100:4
#SBATCH --mem=360000M
#SBATCH --exclusive
#SBATCH --time=30
#SBATCH --account=proj
#SBATCH --partition=gpu
#SBATCH --open-mode=append

fail() { echo "hpcddp: $1" >&2; exit "${2:-1}"; }
checked() { "$@" || fail "this line of the job script failed with status $?: $*"; }

for init in /etc/profile.d/modules.sh /etc/profile.d/lmod.sh /usr/share/lmod/lmod/init/bash /usr/share/Modules/init/bash; do
  # shellcheck disable=SC1090
  if ! type module >/dev/null 2>&1 && [ -r "$init" ]; then . "$init"; fi
done
type module >/dev/null 2>&1 || fail "this node has no \`module\` command. Set module_init in the profile."
checked module load pytorch

export OMP_NUM_THREADS=12 PYTHONUNBUFFERED=1 SUBMITIT_EXECUTOR=slurm SLURM_EXPORT_ENV=ALL

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
[ -n "$MASTER_ADDR" ] || fail "scontrol named no host for $SLURM_JOB_NODELIST"
export MASTER_ADDR MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000)) # below the ephemeral ports (32768)

# Which of the profile's conditions NCCL's version meets, by torch, once for the job.
HPCDDP_NCCL=" $(timeout 300 python3 -c '
import operator, re, sys, torch
version = torch.cuda.nccl.version()[:3]
signs = {"": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
for condition in sys.argv[1:]:
    sign, text = re.fullmatch("([<>]=?|)(.*)", condition).groups()
    parts = tuple(map(int, text.split(".")))
    if signs[sign](version[: len(parts)], parts):
        print(condition, end=" ")
' '<2.21')" ||
  echo "hpcddp: torch reported no NCCL version, so these variables of the profile are not set: NCCL_IB_GID_INDEX" >&2
export HPCDDP_NCCL

# --- launch ---
# Variables that depend on the node or on NCCL's version.
# shellcheck disable=SC2317,SC2329
rank_environment() {
  if [[ $HPCDDP_NCCL == *" <2.21 "* ]]; then
    found=$(
      for port in /sys/class/infiniband/*/ports/*; do
        case $(cat "$port/state" 2>/dev/null) in *ACTIVE*) ;; *) continue ;; esac
        for type in "$port"/gid_attrs/types/*; do
          case $(cat "$type" "$port/gids/${type##*/}" 2>/dev/null) in *v2*:0000:ffff:*) echo "${type##*/}" ;; esac
        done | sort -n | head -n 1
      done | sort -u | { read -r index && ! read -r _ && echo "$index"; }
    )
    if [ -n "$found" ]; then export NCCL_IB_GID_INDEX="$found"; fi
  fi
}

# Each rank starts here.
# shellcheck disable=SC2317,SC2329
start_rank() {
  rank_environment
  exec "$@"
}

srun --kill-on-bad-exit=1 --unbuffered --cpus-per-task=12 \
  --output=/runs/%j_%t.out --error=/runs/%j_%t.err \
  bash -c "$(declare -f rank_environment start_rank); start_rank \"\$@\"" hpcddp \
  python3 -u /runs/.code/abc/bootstrap.py /runs/.jobs/x
rc=$?
exit "$rc"
