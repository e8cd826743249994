#!/bin/bash
#SBATCH -nodes=2
python x.py
# finding: unknown-option 2
# After https://slurm.schedmd.com/sbatch.html
