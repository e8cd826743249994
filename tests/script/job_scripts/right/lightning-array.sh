#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4
#SBATCH --ntasks-per-node=4
#SBATCH --signal=SIGHUP@90
#SBATCH --array=0-3%1
#SBATCH --mem-per-gpu=40G
eval "$(conda shell.bash hook)"
conda activate pl
for lr in 0.1 0.01; do
  srun python train.py --lr "$lr" trainer.num_nodes=2
done
# After https://lightning.ai/docs/pytorch/stable/clouds/cluster_advanced.html
