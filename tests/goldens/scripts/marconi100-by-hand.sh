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

export OMP_NUM_THREADS=8
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
checked module load profile/deeplrn
checked module load autoload
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
{"backend":"slurm","data_root":null,"git_commit":null,"point":{"cluster":"marconi100","device":"cuda","layout":{"exclusive":true,"gpus_per_node":4,"launcher":"direct","node_type":"ac922","nodes":1,"physical_cores_per_rank":8},"measure":{"checkpoint_every_min":15.0,"comm":"off","evaluate":false,"gc":"python","input":"full","interval_percent":2.0,"max_steps":20000,"profile_ranks":[0],"profile_steps":0,"resume":false,"seconds":null,"steps":500,"stop":"steps","telemetry_hz":1.0,"warmup":"fixed","warmup_steps":50},"work":"steps","workload":{"accumulate":1,"batch_per_gpu":32,"channels_last":false,"compile":false,"copy_ahead":false,"cudnn_benchmark":true,"data":{"copies":200,"name":"imagenet","root":"$CINECA_SCRATCH/imagenet","variants":["plain","rotated","translated","scaled","flipped","elastic"]},"ddp":{"bucket_cap_mb":null,"compression":"none","gradient_as_bucket_view":false,"powersgd_rank":1,"static_graph":false},"global_batch":null,"loader_workers_per_rank":16,"model":"resnet50","optimizer":{"lr":0.1,"momentum":0.9,"weight_decay":0.0001},"parallel":"ddp","precision":"fp32","seed":1,"sync_batchnorm":false,"tf32":null}},"profile":{},"run":1,"schema":1,"study":"$HPCDDP_RUNS/adhoc"}
HPCDDP_SPEC_END
)
export HPCDDP_SPEC
# The port is made inside the step from job and step id, and stays below the ephemeral range (32768).
# shellcheck disable=SC2016
srun --nodes=1 --ntasks-per-node=4 --cpus-per-task=32 \
  --kill-on-bad-exit=1 --unbuffered \
  bash -c 'export MASTER_PORT=$((10000 + (SLURM_JOB_ID + 1009 * SLURM_STEP_ID) % 20000)); exec "$@"' hpcddp \
  python3 -u -m hpcddp.worker
rc=$?
# --- end of launch ---

exit "$rc"
