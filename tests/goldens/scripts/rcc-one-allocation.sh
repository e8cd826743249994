#!/bin/bash
# n02-4runs.1f2e3d4c on rcc: 2 nodes x 1 rank, runs one after the other, each a line of tasks.jsonl
#SBATCH --job-name=n02-4runs.1f2e3d4c
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=1
#SBATCH --gres=gpu:v100:1
#SBATCH --mem=2000M
#SBATCH --time=120
#SBATCH --account=proj
#SBATCH --partition=gpu
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR2@120

fail() { echo "hpcddp: $1" >&2; exit "${2:-1}"; }

export PYTHONUNBUFFERED=1 SUBMITIT_EXECUTOR=slurm SLURM_EXPORT_ENV=ALL

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
[ -n "$MASTER_ADDR" ] || fail "scontrol named no host for $SLURM_JOB_NODELIST"
export MASTER_ADDR

# Rank 0 creates this file when it was told to stop (SIGUSR2) and its checkpoint is complete.
export HPCDDP_REQUEUE="$PWD/requeue.$SLURM_JOB_ID"
rm -f -- "$HPCDDP_REQUEUE"

# --- launch ---
# Several runs, one after the other, each a step on the first of the job's nodes. What has ended is not run again when the job is
# requeued: at its time limit, or with a node that was lost.
folder=/runs/s/.jobs/job
told="$folder/steps.jsonl"
mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
unset SLURM_CPUS_PER_TASK SRUN_CPUS_PER_TASK SLURM_TRES_PER_TASK # the job's are not its steps'
rc=0 begun=0 at_work='' over='' heard=''

# tell EVENT TASK [MORE]: a line that `hpcddp status` reads
tell() {
  printf '{"event":"%s","task":%s,"restart":%d,"unix_s":%(%s)T%s}\n' "$1" "$2" "${SLURM_RESTART_COUNT:-0}" -1 "${3:-}" >>"$told"
}

is_over() { grep -q "^{\"event\":\"ended\",\"task\":$1," "$told" || [ -e "$folder/$1/cancelled" ]; }

# Whether every node of the job still starts a process: a run fails with a node that was lost, and so would all that follow.
nodes_live() { srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=1 true; }

# A run without a limit of its own writes checkpoints, and is told to. Any other is cut short, to begin anew in the requeued job,
# unless it had all the time there is.
stop() {
  if [ -z "$limit_min" ]; then
    scancel --signal=USR2 "$SLURM_JOB_ID"
  else
    [ "$begun" -gt 1 ] || is_over "$at_work" || tell ended "$at_work" "$(timed_out)"
    kill -KILL "$step" 2>/dev/null
  fi
}

timed_out() { echo ",\"code\":1,\"word\":\"TIMEOUT\",\"limit_min\":$limit_min"; }

# The warning before the time limit: nothing more is begun.
trap 'over=yes heard=yes; [ -z "$at_work" ] || stop' USR2

# run_step TASK LIMIT_MIN NODES SRUN-OPTIONS-AND-COMMAND...
run_step() {
  local task=$1 list code since=$SECONDS
  limit_min=$2
  printf -v list '%s,' "${hosts[@]:0:$3}"
  if [ -n "$over" ] || is_over "$task"; then return; fi
  begun=$((begun + 1))
  tell started "$task"
  HPCDDP_TASK=$task srun --nodes="$3" --nodelist="${list%,}" --kill-on-bad-exit=1 --unbuffered ${limit_min:+--time="$limit_min"} "${@:4}" \
    >>"$folder/$task/batch.out" 2>>"$folder/$task/batch.err" &
  step=$! at_work=$task
  [ -z "$over" ] || stop # the warning came just before
  while true; do
    heard=''
    wait "$step" 2>/dev/null
    code=$?
    [ -n "$heard" ] || break # else it was the warning that ended the waiting
  done
  at_work=''
  if [ -e "$HPCDDP_REQUEUE" ]; then # its checkpoint is there
    over=yes
  elif [ "$code" = 0 ]; then
    tell ended "$task" ',"code":0'
  elif [ -n "$limit_min" ] && [ "$((SECONDS - since))" -ge "$((60 * limit_min))" ]; then
    tell ended "$task" "$(timed_out)"
    rc=1
  elif [ -n "$over" ] && [ -n "$limit_min" ]; then
    return
  elif nodes_live || [ "$(grep -c "^{\"event\":\"started\",\"task\":$task," "$told")" -gt 2 ]; then
    tell ended "$task" ",\"code\":$code"
    rc=1
  else
    over=yes
  fi
}

# Every node for some seconds, before the first run that is left: what is found stands in preflight/ of the study. The runs go on
# whatever it is.
# preflight SRUN-OPTIONS-AND-COMMAND...
preflight() {
  srun --nodes=2 --kill-on-bad-exit=1 --unbuffered --time=5 "$@" \
    >>"$folder/preflight/batch.out" 2>>"$folder/preflight/batch.err" ||
    echo "hpcddp: preflight failed, and the runs go on without it; see $folder/preflight" >&2
}

any_left() {
  local task
  for ((task = 0; task < 4; task++)); do
    is_over "$task" || return 0
  done
  return 1
}

tell begun null
export OMP_NUM_THREADS=1
# Each rank starts here.
# shellcheck disable=SC2317,SC2329
start_rank() {
  trap "" USR2
  export MASTER_PORT=$((10000 + (SLURM_JOB_ID + 1009 * SLURM_STEP_ID) % 20000)) # below the ephemeral ports
  exec "$@"
}

! any_left || preflight --job-name=preflight \
  --ntasks=2 --ntasks-per-node=1 --cpus-per-task=1 --gres=gpu:v100:1 --mem=2000M --exact \
  --output=/runs/s/.jobs/job/preflight/%j_%t_log.out --error=/runs/s/.jobs/job/preflight/%j_%t_log.err \
  bash -c "$(declare -f start_rank); start_rank \"\$@\"" hpcddp \
  python3 -u /runs/s/.code/0/bootstrap.py /runs/s/.jobs/job/preflight
# n02-g1-b8-a2c2aa7be996.r1
export OMP_NUM_THREADS=1
run_step 0 '' 2 --job-name=n02-g1-b8-a2c2aa7be996.r1 \
  --ntasks=2 --ntasks-per-node=1 --cpus-per-task=1 --gres=gpu:v100:1 --mem=2000M --exact \
  --output=/runs/s/.jobs/job/0/%j_%t_log.out --error=/runs/s/.jobs/job/0/%j_%t_log.err \
  bash -c "$(declare -f start_rank); start_rank \"\$@\"" hpcddp \
  python3 -u /runs/s/.code/0/bootstrap.py /runs/s/.jobs/job/0
# n02-g1-b8-ffc678d7fe4d.r1
export OMP_NUM_THREADS=1
run_step 1 30 2 --job-name=n02-g1-b8-ffc678d7fe4d.r1 \
  --ntasks=2 --ntasks-per-node=1 --cpus-per-task=1 --gres=gpu:v100:1 --mem=2000M --exact \
  --output=/runs/s/.jobs/job/1/%j_%t_log.out --error=/runs/s/.jobs/job/1/%j_%t_log.err \
  bash -c "$(declare -f start_rank); start_rank \"\$@\"" hpcddp \
  python3 -u /runs/s/.code/0/bootstrap.py /runs/s/.jobs/job/1
# n01-g1-b8-eed853bad67b.r1
export OMP_NUM_THREADS=1
run_step 2 '' 1 --job-name=n01-g1-b8-eed853bad67b.r1 \
  --ntasks=1 --ntasks-per-node=1 --cpus-per-task=1 --gres=gpu:v100:1 --mem=2000M --exact \
  --output=/runs/s/.jobs/job/2/%j_%t_log.out --error=/runs/s/.jobs/job/2/%j_%t_log.err \
  bash -c "$(declare -f start_rank); start_rank \"\$@\"" hpcddp \
  python3 -u /runs/s/.code/0/bootstrap.py /runs/s/.jobs/job/2
# n01-g1-b8-7f83cd68a314.r1
export OMP_NUM_THREADS=1
run_step 3 30 1 --job-name=n01-g1-b8-7f83cd68a314.r1 \
  --ntasks=1 --ntasks-per-node=1 --cpus-per-task=1 --gres=gpu:v100:1 --mem=2000M --exact \
  --output=/runs/s/.jobs/job/3/%j_%t_log.out --error=/runs/s/.jobs/job/3/%j_%t_log.err \
  bash -c "$(declare -f start_rank); start_rank \"\$@\"" hpcddp \
  python3 -u /runs/s/.code/0/bootstrap.py /runs/s/.jobs/job/3

# What is left goes on when the job is requeued.
for ((task = 0; task < 4; task++)); do
  is_over "$task" || touch "$HPCDDP_REQUEUE"
done
if [ -e "$HPCDDP_REQUEUE" ]; then
  rm -f -- "$HPCDDP_REQUEUE"
  scontrol requeue "$SLURM_JOB_ID" || fail "the checkpoint is complete, but Slurm did not requeue the job. Submit it again."
  exit 0
fi
exit "$rc"
