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

export OMP_NUM_THREADS=12
export PYTHONUNBUFFERED=1
export SUBMITIT_EXECUTOR=slurm
export SLURM_EXPORT_ENV=ALL

if ! type module >/dev/null 2>&1; then
  for init in /etc/profile.d/modules.sh /etc/profile.d/lmod.sh /usr/share/lmod/lmod/init/bash /usr/share/Modules/init/bash; do
    # shellcheck disable=SC1090
    if [ -r "$init" ]; then . "$init"; break; fi
  done
fi
type module >/dev/null 2>&1 || fail "this node has no \`module\` command; the profile's module_init says where it is defined"
checked module load pytorch

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
[ -n "$MASTER_ADDR" ] || fail "scontrol named no host for $SLURM_JOB_NODELIST"
export MASTER_ADDR

# --- launch ---
# Submitted by hand: the records go to $HPCDDP_RUNS/adhoc; this Python has its own hpcddp installed.
[ -n "${HPCDDP_RUNS:-}" ] || HPCDDP_RUNS=$SLURM_SUBMIT_DIR/jobs
export HPCDDP_RUNS
export PYTHONSAFEPATH=1
HPCDDP_SPEC=$(cat <<'HPCDDP_SPEC_END'
{"backend":"slurm","data_root":null,"git_commit":null,"point":{"cluster":"rcc","device":"cuda","layout":{"exclusive":true,"gpus_per_node":4,"launcher":"direct","node_type":"v100","nodes":1,"physical_cores_per_rank":12},"measure":{"checkpoint_every_min":15.0,"comm":"off","evaluate":false,"gc":"python","input":"full","interval_percent":2.0,"max_steps":20000,"profile_ranks":[0],"profile_steps":0,"resume":false,"seconds":null,"steps":2000,"stop":"steps","telemetry_hz":1.0,"warmup":"fixed","warmup_steps":100},"work":"steps","workload":{"accumulate":1,"batch_per_gpu":512,"channels_last":false,"compile":false,"copy_ahead":false,"cudnn_benchmark":true,"data":{"copies":200,"name":"bigmnist","root":"/scratch/g/$SLURM_JOB_ACCOUNT/bigmnist","variants":["plain","rotated","translated","scaled","flipped","elastic"]},"ddp":{"bucket_cap_mb":null,"compression":"none","gradient_as_bucket_view":false,"powersgd_rank":1,"static_graph":false},"global_batch":null,"loader_workers_per_rank":8,"model":"mnist-cnn","optimizer":{"lr":0.01,"momentum":0.9,"weight_decay":0.0},"parallel":"ddp","precision":"fp32","seed":1,"sync_batchnorm":false,"tf32":null}},"profile":{},"run":1,"schema":1,"study":"$HPCDDP_RUNS/adhoc"}
HPCDDP_SPEC_END
)
export HPCDDP_SPEC
# The port is made inside the step from job and step id, and stays below the ephemeral range (32768).
# shellcheck disable=SC2016
srun --nodes=1 --ntasks-per-node=4 --cpus-per-task=12 \
  --kill-on-bad-exit=1 --unbuffered \
  bash -c 'export MASTER_PORT=$((10000 + (SLURM_JOB_ID + 1009 * SLURM_STEP_ID) % 20000)); exec "$@"' hpcddp \
  python3 -u -m hpcddp.worker
rc=$?
# --- end of launch ---

exit "$rc"
