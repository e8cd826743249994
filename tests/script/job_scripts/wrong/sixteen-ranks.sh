#!/bin/bash
# After https://github.com/clessig/atmorep/issues/77
# finding: two-ranks-a-gpu 5
#SBATCH -N 2 -n 16 --gpus-per-node=h100:4 -c 8
srun --unbuffered singularity exec --nv img.sif python -m pkg.train
