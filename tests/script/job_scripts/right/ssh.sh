#!/bin/bash
#SBATCH -N 2
#SBATCH --gres=gpu:8
#SBATCH --exclusive
HOSTS=$(scontrol show hostnames)
i=0
for h in $HOSTS; do
  ssh $h "cd $PWD; torchrun --nnodes=2 --node_rank=$i --nproc_per_node=8 --master_addr=$(hostname) --master_port=29500 t.py" &
  i=$((i+1))
done
wait
# After https://slurm.schedmd.com/srun.html
