#!/bin/bash
# After https://doc.nhr.fau.de/batch-processing/advanced-topics-slurm (without unset SLURM_EXPORT_ENV)
# finding: export 9
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --export=NONE
module load python
srun python train.py
