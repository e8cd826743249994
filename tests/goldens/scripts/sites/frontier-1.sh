#!/bin/bash
# n01-g8-b128-8f52eaee4db6 on frontier: 1 node x 8 ranks, resnet50 on synthetic-imagenet
#SBATCH --job-name=n01-g8-b128-8f52eaee4db6
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --gpus-per-task=1
#SBATCH --exclusive
#SBATCH --time=30
#SBATCH --account=proj
#SBATCH --partition=batch
#SBATCH --open-mode=append
#SBATCH --network=disable_rdzv_get

fail() { echo "hpcddp: $1" >&2; exit "${2:-1}"; }
checked() { "$@" || fail "this line of the job script failed with status $?: $*"; }

for init in /etc/profile.d/modules.sh /usr/share/lmod/lmod/init/bash; do
  # shellcheck disable=SC1090
  if ! type module >/dev/null 2>&1 && [ -r "$init" ]; then . "$init"; fi
done
type module >/dev/null 2>&1 || fail "this node has no \`module\` command. Set module_init in the profile."
checked module load PrgEnv-gnu/8.7.0
checked module load cpe/26.03
checked module load miniforge3/23.11.0-0
checked module load rocm/7.1.1
checked module load rccl-net-plugin
checked module load craype-accel-amd-gfx90a
# shellcheck disable=SC2016
export LD_LIBRARY_PATH="$CRAY_LD_LIBRARY_PATH:$LD_LIBRARY_PATH" ||
  fail "this line of the job script failed with status $?: "'export LD_LIBRARY_PATH="$CRAY_LD_LIBRARY_PATH:$LD_LIBRARY_PATH"'

export OMP_NUM_THREADS=7 PYTHONUNBUFFERED=1 SUBMITIT_EXECUTOR=slurm SLURM_EXPORT_ENV=ALL

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
[ -n "$MASTER_ADDR" ] || fail "scontrol named no host for $SLURM_JOB_NODELIST"
# Slurm's address of the node: on the node itself its name may lead to the loopback device.
first=$MASTER_ADDR
MASTER_ADDR=$(scontrol show node "$first" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p')
[[ $MASTER_ADDR =~ ^[0-9.]+$ || $MASTER_ADDR == *:* ]] ||
  fail "Slurm's address of $first is '$MASTER_ADDR', which is no number. Set rendezvous.master_suffix in the profile."
export MASTER_ADDR MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000)) # below the ephemeral ports (32768)

# --- launch ---
srun --kill-on-bad-exit=1 --unbuffered --cpus-per-task=7 --gpus-per-task=1 \
  --gpu-bind=closest \
  --output=/runs/%j_%t.out --error=/runs/%j_%t.err \
  python3 -u /runs/.code/abc/bootstrap.py /runs/.jobs/x
rc=$?
exit "$rc"
