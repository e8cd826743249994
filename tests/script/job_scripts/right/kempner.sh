#!/bin/bash
# After https://kempnerinstitute.github.io/KempnerForge/how-to/slurm-distributed-setup.html
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4      # ← must match gpus-per-node
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --mem=0
#SBATCH --signal=B:SIGTERM@120   # two minutes before the limit
#SBATCH --requeue
#SBATCH --open-mode=append

_term() {
  echo "caught SIGTERM"
  kill -TERM "$child" 2>/dev/null
  wait "$child"
  scontrol requeue "$SLURM_JOB_ID"
}
trap _term SIGTERM
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)
export MASTER_PORT=$((29500 + SLURM_JOB_ID % 1000))
srun --kill-on-bad-exit=1 --export=ALL uv run python scripts/train.py "$@" &
child=$!
wait "$child"
