#!/bin/bash
# After https://docs.lumi-supercomputer.eu/software/packages/pytorch/
#SBATCH --job-name=pt-cnn
#SBATCH --partition=standard-g
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
#SBATCH --tasks-per-node=1
#SBATCH --cpus-per-task=56
#SBATCH --mem=480G
#SBATCH --time=00:30:00
#SBATCH --account=project_<your_project_id>

export NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3
export NCCL_NET_GDR_LEVEL=3
export SINGULARITYENV_PREPEND_PATH=/user-software/bin
MASTER=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
PORT=$((15000 + SLURM_JOB_ID % 10000))
srun singularity exec -B /scratch $CONTAINER bash -c '$WITH_CONDA; python -m torch.distributed.run \
  --nnodes=$SLURM_JOB_NUM_NODES --nproc_per_node=8 --rdzv_id=$SLURM_JOB_ID --rdzv_backend=c10d \
  --rdzv_endpoint='"$MASTER:$PORT"' cnn_distr.py'
