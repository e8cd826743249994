#!/bin/bash
# After https://docs.pytorch.org/docs/stable/elastic/run.html
#SBATCH --job-name=single
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --gres=gpu:4
#SBATCH --mem-per-cpu=4G
#SBATCH --time=08:00:00
#SBATCH --output=logs/%x_%j.log

. "$HOME/miniforge3/etc/profile.d/conda.sh"
conda activate ddp
export OMP_NUM_THREADS=4
torchrun --rdzv-backend=c10d --rdzv-endpoint=localhost:0 --nnodes=1 --nproc-per-node=4 train.py --lr 0.1
echo "done: $?"
