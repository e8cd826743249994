#!/bin/bash -x
# After https://sdlaml.pages.jsc.fz-juelich.de/ai/recipes/pytorch_at_jsc/
#SBATCH --account=training2411
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=48
#SBATCH --gres=gpu:4
#SBATCH --partition=booster
#SBATCH --exclusive
#SBATCH --time=00:30:00

export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
source sc_venv_template/activate.sh
MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"
MASTER_ADDR="${MASTER_ADDR}i"
export MASTER_ADDR
export MASTER_PORT=54123
export NCCL_SOCKET_IFNAME=ib0

srun --cpu-bind=none bash -c 'torchrun_jsc \
    --nnodes="$SLURM_NNODES" \
    --nproc_per_node=gpu \
    --rdzv_id="$SLURM_JOB_ID" \
    --rdzv_conf=is_host=$(( SLURM_NODEID == 0 ? 1 : 0 )) \
    --rdzv_backend=c10d \
    --rdzv_endpoint="$MASTER_ADDR":"$MASTER_PORT" \
    "$@"' bash train.py --epochs 3
