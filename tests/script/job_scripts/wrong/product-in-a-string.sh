#!/bin/bash
# After https://github.com/huggingface/accelerate/blob/main/examples/slurm/submit_multinode.sh
# finding: launcher-in-every-task 11
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --exclusive
export GPUS_PER_NODE=4
head_node_ip=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
LAUNCHER="accelerate launch --num_processes $((SLURM_NNODES * GPUS_PER_NODE)) --num_machines $SLURM_NNODES --main_process_ip $head_node_ip --main_process_port 29500"
srun bash -c "$LAUNCHER --machine_rank \$SLURM_PROCID train.py"
