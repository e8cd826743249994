#!/bin/bash
# n01-g4-b256-25eeb7aa3d11 on jupiter: 1 node x 4 ranks, resnet50 on synthetic-imagenet
#SBATCH --job-name=n01-g4-b256-25eeb7aa3d11
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=72
#SBATCH --gres=gpu:4
#SBATCH --exclusive
#SBATCH --time=30
#SBATCH --account=proj
#SBATCH --partition=booster
#SBATCH --open-mode=append

fail() { echo "hpcddp: $1" >&2; exit "${2:-1}"; }
checked() { "$@" || fail "this line of the job script failed with status $?: $*"; }

for init in /etc/profile.d/modules.sh /etc/profile.d/lmod.sh /usr/share/lmod/lmod/init/bash; do
  # shellcheck disable=SC1090
  if ! type module >/dev/null 2>&1 && [ -r "$init" ]; then . "$init"; fi
done
type module >/dev/null 2>&1 || fail "this node has no \`module\` command. Set module_init in the profile."
checked module load Stages/2025
checked module load GCC/13.3.0
checked module load Python/3.12.3
checked module load CUDA/12
checked module load PyTorch/2.5.1
checked module load torchvision/0.20.1

export OMP_NUM_THREADS=72 PYTHONUNBUFFERED=1 SUBMITIT_EXECUTOR=slurm SLURM_EXPORT_ENV=ALL
export CUDA_VISIBLE_DEVICES=0,1,2,3

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
[ -n "$MASTER_ADDR" ] || fail "scontrol named no host for $SLURM_JOB_NODELIST"
# Slurm's address of the node: on the node itself its name may lead to the loopback device.
first=$MASTER_ADDR
MASTER_ADDR=$(scontrol show node "$first" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p')
[[ $MASTER_ADDR =~ ^[0-9.]+$ || $MASTER_ADDR == *:* ]] ||
  fail "Slurm's address of $first is '$MASTER_ADDR', which is no number. Set rendezvous.master_suffix in the profile."
export MASTER_ADDR MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000)) # below the ephemeral ports (32768)

# --- launch ---
srun --kill-on-bad-exit=1 --unbuffered --cpus-per-task=72 \
  --cpu-bind=sockets \
  --output=/runs/%j_%t.out --error=/runs/%j_%t.err \
  python3 -u /runs/.code/abc/bootstrap.py /runs/.jobs/x
rc=$?
exit "$rc"
