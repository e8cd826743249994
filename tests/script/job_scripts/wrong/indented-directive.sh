#!/bin/bash
#SBATCH --nodes=2
  #SBATCH --ntasks-per-node=4
srun python t.py
# finding: no-directive 3
# After https://slurm.schedmd.com/sbatch.html
