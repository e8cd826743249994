#!/bin/bash
# n01-g4-b512-57fb4cc90455 on rcc: 1 node x 4 ranks, mnist-cnn on bigmnist
#SBATCH --job-name=n01-g4-b512-57fb4cc90455
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=12
#SBATCH --gres=gpu:v100:4
#SBATCH --mem=360000M
#SBATCH --exclusive
#SBATCH --time=20
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

# --- launch ---
# The job's Python needs hpcddp. Records go to $HPCDDP_RUNS/adhoc.
export HPCDDP_RUNS=${HPCDDP_RUNS:-$SLURM_SUBMIT_DIR/jobs}
HPCDDP_SPEC=$(tr -d '\n' <<'HPCDDP_SPEC_END'
{
  "point": {
    "cluster": "rcc",
    "layout": {"gpus_per_node": 4, "node_type": "v100", "physical_cores_per_rank": 12},
    "measure": {"steps": 2000, "warmup_steps": 100},
    "workload": {
      "batch_per_gpu": 512,
      "data": {"name": "bigmnist", "root": "/scratch/g/$SLURM_JOB_ACCOUNT/bigmnist"},
      "loader_workers_per_rank": 8, "model": "mnist-cnn"
    }
  },
  "study": "$HPCDDP_RUNS/adhoc"
}
HPCDDP_SPEC_END
)
export HPCDDP_SPEC PYTHONSAFEPATH=1

srun --kill-on-bad-exit=1 --unbuffered --cpus-per-task=12 \
  python3 -u -m hpcddp.worker
rc=$?
exit "$rc"
