#!/bin/bash
# After https://github.com/pytorch/torchtitan/blob/main/multinode_trainer.slurm, with its arguments in an array
# finding: nnodes 11
#SBATCH --nodes=4 --ntasks-per-node=1 --gpus-per-node=8
#SBATCH --exclusive
NNODES=2
DISTRIBUTED_ARGS=(
    --nproc_per_node 8 --nnodes $NNODES
    --rdzv_backend c10d --rdzv_endpoint "$(hostname):29500"
)
srun torchrun "${DISTRIBUTED_ARGS[@]}" train.py
