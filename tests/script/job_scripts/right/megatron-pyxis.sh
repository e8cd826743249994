#!/bin/bash
# After https://docs.nvidia.com/nemo/megatron-bridge/nightly/skills/multi-node-slurm/SKILL.html
#SBATCH --job-name=llama-sft
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=00:30:00
#SBATCH --account=acc
#SBATCH --partition=batch
#SBATCH --output=logs/%x_%j.log
#SBATCH --exclusive

CONTAINER_IMAGE="/images/nemo.sqsh"
export NCCL_NVLS_ENABLE=0
srun --mpi=pmix --no-kill --container-image="$CONTAINER_IMAGE" --container-mounts="/lustre:/lustre" --no-container-mount-home \
  bash -c "cd /opt/Megatron-Bridge && uv run --no-sync python scripts/train.py --nodes 4"
