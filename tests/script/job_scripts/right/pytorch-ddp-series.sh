#!/bin/bash
# After https://github.com/pytorch/examples/blob/main/distributed/ddp-tutorial-series/slurm/sbatch_run.sh
#SBATCH --job-name=multinode
#SBATCH --ntasks=4
#SBATCH --nodes=4
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=4

nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
nodes_array=($nodes)
head_node=${nodes_array[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)
port=$(( 20000 + SLURM_JOB_ID % 10000 ))
echo Node IP: $head_node_ip
export LOGLEVEL=INFO

srun torchrun --nnodes 4 --nproc_per_node 1 --rdzv_id $RANDOM --rdzv_backend c10d \
  --rdzv_endpoint $head_node_ip:$port /shared/examples/multinode_torchrun.py 50 10
