#!/bin/bash
# After https://github.com/huggingface/open-r1/tree/main/slurm: a program of several nodes that is no launcher, and a loop below
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)
srun --nodes=2 --ntasks=2 --ntasks-per-node=1 bash -c "python -m serve.launch --nnodes 2 --node-rank \$SLURM_PROCID --address $head" &
while true; do
  curl -s "http://$head:30000/health" || exit 1
  sleep 300
done
