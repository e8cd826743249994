#!/bin/bash
# After https://slurm.schedmd.com/sbatch.html
# finding: no-wait 10
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
for i in 0 1; do
  echo "node $i"
  srun -N1 -n1 --nodelist=${nodes[$i]} ./worker.sh "$i" &
done
echo started
