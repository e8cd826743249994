#!/bin/bash
#SBATCH --nodes=2
srun python t.py
# finding: shebang 1
# After https://slurm.schedmd.com/sbatch.html
