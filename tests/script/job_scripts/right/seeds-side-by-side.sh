#!/bin/bash
# After https://docs.nersc.gov/jobs/examples/ (several steps at once)
#SBATCH --nodes=1
#SBATCH --ntasks=4
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-task=1
for seed in 0 1 2 3; do
  srun --exact --ntasks=1 --cpus-per-task=8 --gpus=1 --mem=40G python train.py --seed "$seed" > "log.$seed" 2>&1 &
done
echo "all started"; wait
