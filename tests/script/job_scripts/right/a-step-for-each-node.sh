#!/bin/bash
# After https://docs.pytorch.org/docs/stable/elastic/run.html
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:2
#SBATCH --cpus-per-task=16
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
port=$((10000 + SLURM_JOB_ID % 20000))
for ((i = 0; i < SLURM_NNODES; i++)); do
  srun --nodes=1 --ntasks=1 -w "${nodes[$i]}" torchrun --nnodes=2 --node_rank="$i" --nproc_per_node=2 \
    --master_addr="${nodes[0]}" --master_port="$port" train.py &
done
wait
