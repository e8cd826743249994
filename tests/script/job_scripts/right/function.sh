#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=a100:4
#SBATCH --cpus-per-gpu=8
launch() {
  local n=$1; shift
  srun -N "$n" -n "$n" torchrun --nnodes="$n" --nproc_per_node=gpu --rdzv_backend=c10d --rdzv_endpoint="$(hostname):$((10000 + SLURM_JOB_ID % 20000))" "$@"
}
for n in 1 2; do launch "$n" train.py; done
# After https://slurm.schedmd.com/srun.html
