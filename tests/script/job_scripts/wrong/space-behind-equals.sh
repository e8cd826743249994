#!/bin/bash
#SBATCH --account= proj
python x.py
# finding: stray-word 2
# After https://slurm.schedmd.com/sbatch.html
