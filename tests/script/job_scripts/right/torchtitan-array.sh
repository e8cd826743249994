#!/bin/bash
# After https://github.com/pytorch/torchtitan/blob/main/multinode_trainer.slurm, with its arguments in an array
#SBATCH --job-name=titan --nodes=2 --ntasks=2
#SBATCH --gpus-per-task=8
#SBATCH --cpus-per-task=96
#SBATCH --exclusive
set -ex
NNODES=2
GPUS_PER_NODE=8
LOG_RANK=${LOG_RANK:-0}
nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
head_node=${nodes[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE   # GPUs (all of them)
    --nnodes $NNODES
    --rdzv_id $RANDOM
    --rdzv_backend c10d
    --rdzv_endpoint "$head_node_ip:29500"
)
overrides=""
if [ $# -ne 0 ]; then
    overrides="$*"
fi
which torchrun
PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True" \
srun torchrun ${DISTRIBUTED_ARGS[@]} --local-ranks-filter ${LOG_RANK} --role rank --tee 3 train.py --job.config_file c.toml $overrides
