#!/bin/bash
# After https://slurm.schedmd.com/sbatch.html (--signal), with a loop that looks after the step
#SBATCH --nodes=2 --ntasks-per-node=4 --gres=gpu:4
#SBATCH --signal=B:TERM@180
trap 'touch stop; kill -TERM $pid' TERM
srun --label python -m mypackage.train --config base.yaml &
pid=$!
while kill -0 $pid 2>/dev/null; do
  sleep 30
  nvidia-smi >> usage.log
done
