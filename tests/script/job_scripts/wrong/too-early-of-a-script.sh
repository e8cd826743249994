#!/bin/bash
#SBATCH --nodes=2
srun ./wrapper.sh $SLURM_NODEID
# finding: too-early 3
# After https://github.com/huggingface/accelerate/issues/2816
