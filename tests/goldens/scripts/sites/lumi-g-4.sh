#!/bin/bash
# n04-g8-b128-a9ae202129ea on lumi-g: 4 nodes x 8 ranks, resnet50 on synthetic-imagenet
#SBATCH --job-name=n04-g8-b128-a9ae202129ea
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --gpus-per-node=8
#SBATCH --mem=491520M
#SBATCH --exclusive
#SBATCH --time=30
#SBATCH --account=project_465000001
#SBATCH --partition=standard-g
#SBATCH --open-mode=append

fail() { echo "hpcddp: $1" >&2; exit "${2:-1}"; }

export OMP_NUM_THREADS=7
export PYTHONUNBUFFERED=1
export SUBMITIT_EXECUTOR=slurm
export SLURM_EXPORT_ENV=ALL
# source: github.com/OpenEuroLLM/oellm-autoexp@c6d0cc0, config/slurm/lumi.yaml
export NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3

module use /appl/local/laifs/modules || fail "this line of the job script failed with status $?: "'module use /appl/local/laifs/modules'
module load lumi-aif-singularity-bindings || fail "this line of the job script failed with status $?: "'module load lumi-aif-singularity-bindings'

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
[ -n "$MASTER_ADDR" ] || fail "scontrol named no host for $SLURM_JOB_NODELIST"
export MASTER_ADDR

# --- launch ---
# The port is made inside the step from job and step id, and stays below the ephemeral range (32768).
# shellcheck disable=SC2016
srun --nodes=4 --ntasks-per-node=8 --cpus-per-task=7 --cpu-bind=mask_cpu:0x00fe000000000000,0xfe00000000000000,0x0000000000fe0000,0x00000000fe000000,0x00000000000000fe,0x000000000000fe00,0x000000fe00000000,0x0000fe0000000000 \
  --kill-on-bad-exit=1 --unbuffered --output=/runs/%j_%t.out --error=/runs/%j_%t.err \
  bash -c 'export MASTER_PORT=$((10000 + (SLURM_JOB_ID + 1009 * SLURM_STEP_ID) % 20000)); exec "$@"' hpcddp \
  python3 -u /runs/.code/abc/bootstrap.py /runs/.jobs/x
rc=$?
# --- end of launch ---

exit "$rc"
