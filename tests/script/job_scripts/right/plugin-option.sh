#!/bin/bash
#SBATCH --uenv prgenv
#SBATCH --nodes=2
srun python x.py
