#!/bin/bash
# After https://docs.alliancecan.ca/wiki/Huggingface (environments on every node)
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=24
#SBATCH --mem=0
#SBATCH --time=0-03:00

srun -N $SLURM_NNODES -n $SLURM_NNODES config_env.sh
export HEAD_NODE=$(hostname)
export HEAD_NODE_PORT=34567
source $SLURM_TMPDIR/ENV/bin/activate
export LAUNCHER_ARGS="--nnodes=$SLURM_NNODES --nproc_per_node=4"
srun -N 2 --ntasks-per-node=1 bash launch_training_accelerate.sh
deactivate
