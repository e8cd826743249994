#!/bin/bash
#SBATCH -N 1
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:2
case "$1" in
  small) ARGS="--size s" ;;
  *) ARGS="--size l" ;;
esac
nvidia-smi dmon -o T > smi.log &
srun --overlap --ntasks=1 nvidia-smi -l 10 > x.log &
srun torchrun --standalone --nproc-per-node="${SLURM_GPUS_ON_NODE:-2}" train.py $ARGS
# After https://slurm.schedmd.com/srun.html
