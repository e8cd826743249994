#!/bin/bash
# n01-g4-b32-e3b720803b27 on marconi100: 1 node x 4 ranks, resnet50 on imagenet
#SBATCH --job-name=n01-g4-b32-e3b720803b27
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --gres=gpu:4
#SBATCH --mem=246000M
#SBATCH --exclusive
#SBATCH --time=30
#SBATCH --account=proj
#SBATCH --partition=m100_usr_prod
#SBATCH --open-mode=append

fail() { echo "hpcddp: $1" >&2; exit "${2:-1}"; }
checked() { "$@" || fail "this line of the job script failed with status $?: $*"; }

for init in /etc/profile.d/modules.sh /usr/share/Modules/init/bash /usr/share/lmod/lmod/init/bash; do
  # shellcheck disable=SC1090
  if ! type module >/dev/null 2>&1 && [ -r "$init" ]; then . "$init"; fi
done
type module >/dev/null 2>&1 || fail "this node has no \`module\` command. Set module_init in the profile."
checked module load profile/deeplrn
checked module load autoload
checked module load pytorch

export OMP_NUM_THREADS=8 PYTHONUNBUFFERED=1 SUBMITIT_EXECUTOR=slurm SLURM_EXPORT_ENV=ALL

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
[ -n "$MASTER_ADDR" ] || fail "scontrol named no host for $SLURM_JOB_NODELIST"
export MASTER_ADDR MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000)) # below the ephemeral ports (32768)

# --- launch ---
# The job's Python needs hpcddp. Records go to $HPCDDP_RUNS/adhoc.
export HPCDDP_RUNS=${HPCDDP_RUNS:-$SLURM_SUBMIT_DIR/jobs}
HPCDDP_SPEC=$(tr -d '\n' <<'HPCDDP_SPEC_END'
{
  "point": {
    "cluster": "marconi100",
    "layout": {"gpus_per_node": 4, "node_type": "ac922", "physical_cores_per_rank": 8},
    "workload": {
      "data": {"name": "imagenet", "root": "$CINECA_SCRATCH/imagenet"},
      "loader_workers_per_rank": 16, "model": "resnet50",
      "optimizer": {"lr": 0.1, "weight_decay": 0.0001}
    }
  },
  "study": "$HPCDDP_RUNS/adhoc"
}
HPCDDP_SPEC_END
)
export HPCDDP_SPEC PYTHONSAFEPATH=1

srun --kill-on-bad-exit=1 --unbuffered --cpus-per-task=32 \
  python3 -u -m hpcddp.worker
rc=$?
exit "$rc"
