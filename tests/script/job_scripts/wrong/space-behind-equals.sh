#!/bin/bash
#SBATCH --account= proj
python x.py
# finding: stray-word 2
