#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --gres=gpu:2
#SBATCH --time=60
#SBATCH --open-mode=append
export SUBMITIT_EXECUTOR=slurm
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
for rank in 0 1; do
  srun --nodes=1 --ntasks-per-node=1 --cpus-per-task=16 --kill-on-bad-exit=1 -w "${nodes[rank]}" torchrun --nnodes=2 --node_rank="$rank" --nproc_per_node=2 --master_addr="${nodes[0]}" --master_port=$((10000 + SLURM_JOB_ID % 20000)) train.py &
done
# finding: no-wait 11
# After https://slurm.schedmd.com/sbatch.html
