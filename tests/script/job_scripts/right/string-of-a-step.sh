#!/bin/bash
#SBATCH --job-name=x
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=32
#SBATCH --time=10
if [ -z "$MASTER_PORT" ]; then
  export MASTER_PORT=$(python -c 'import socket; s=socket.socket(); s.bind(("",0)); print(s.getsockname()[1])')
fi
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)
export MASTER_ADDR
run_cmd="torchrun --nproc_per_node=${SLURM_GPUS_ON_NODE} --nnodes=${SLURM_NNODES} --node_rank=\$SLURM_NODEID --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT train.py"
srun --label sh -c "$run_cmd"
# After https://github.com/stas00/ml-engineering/blob/master/orchestration/slurm/launchers/accelerate-launcher.slurm
