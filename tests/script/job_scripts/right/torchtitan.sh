#!/bin/bash
# After https://github.com/pytorch/torchtitan/blob/main/multinode_trainer.slurm

#SBATCH --job-name=titan

#SBATCH --ntasks=4

#SBATCH --nodes=4

#SBATCH --gpus-per-task=8
#SBATCH --cpus-per-task=96
#SBATCH --exclusive
#SBATCH --partition=train

nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
nodes_array=($nodes)
head_node=${nodes_array[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)
export FI_PROVIDER="efa"
# export NCCL_P2P_DISABLE=1
export NCCL_DEBUG=WARN
export CUDA_LAUNCH_BLOCKING=0
export NCCL_SOCKET_IFNAME="eth0,en,eth,em,bond"
export NCCL_BUFFSIZE=2097152
CONFIG_FILE=${CONFIG_FILE:-"./llama3_8b.toml"}

dcgmi profile --pause
srun torchrun --nnodes 4 --nproc_per_node 8 --rdzv_id 101 --rdzv_backend c10d --rdzv_endpoint "$head_node_ip:29500" -m torchtitan.train --job.config_file ${CONFIG_FILE} "$@"
dcgmi profile --resume
