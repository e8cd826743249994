#!/bin/bash
#SBATCH --uenv prgenv
#SBATCH --nodes=2
srun python x.py
# After https://docs.cscs.ch/software/ml/pytorch/
