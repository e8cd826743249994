#!/bin/bash
# After https://docs.alliancecan.ca/wiki/PyTorch#Using_DistributedDataParallel
#SBATCH --nodes 2             # Request 2 nodes so all resources are in two nodes.
#SBATCH --gres=gpu:2          # Request 2 GPU "generic resources" per node.
#SBATCH --ntasks-per-node=2   # one process per GPU
#SBATCH --cpus-per-task=1
#SBATCH --mem=8G
#SBATCH --time=0-03:00
#SBATCH --output=%N-%j.out

module load StdEnv/2023 python
virtualenv --no-download $SLURM_TMPDIR/env
source $SLURM_TMPDIR/env/bin/activate
pip install torch torchvision --no-index
export TORCH_NCCL_ASYNC_HANDLING=1
export MASTER_ADDR=$(hostname) # the script runs on the first node
export port=$((SLURM_JOB_ID % 20000 + 10000))
echo "r$SLURM_NODEID master: $MASTER_ADDR"
echo "r$SLURM_NODEID Launching python script"

# Each process takes its rank from SLURM_PROCID.
srun python pytorch-ddp-test.py --init_method tcp://$MASTER_ADDR:$port --world_size $((SLURM_NTASKS_PER_NODE * SLURM_JOB_NUM_NODES)) --batch_size 256
