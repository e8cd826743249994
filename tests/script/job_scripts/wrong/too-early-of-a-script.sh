#!/bin/bash
#SBATCH --nodes=2
srun ./wrapper.sh $SLURM_NODEID
# finding: too-early 3
