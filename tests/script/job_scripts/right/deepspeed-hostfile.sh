#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
#SBATCH --exclusive
scontrol show hostnames $SLURM_JOB_NODELIST | awk '{print $1" slots=8"}' > hostfile
deepspeed --hostfile=hostfile --num_nodes 2 --num_gpus 8 --master_port=12345 train.py --deepspeed ds.json
# After https://www.deepspeed.ai/getting-started/
