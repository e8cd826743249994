#!/bin/bash
# After https://github.com/huggingface/accelerate/blob/main/examples/slurm/submit_multinode.sh
#SBATCH --job-name=multinode
#SBATCH -D .
#SBATCH --nodes=4                   # number of nodes
#SBATCH --ntasks-per-node=1         # number of MP tasks
#SBATCH --gres=gpu:4                # number of GPUs per node
#SBATCH --cpus-per-task=160
#SBATCH --exclusive
#SBATCH --time=01:59:00

source activateEnvironment.sh
export GPUS_PER_NODE=4
head_node_ip=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)

export LAUNCHER="accelerate launch \
    --num_processes $((SLURM_NNODES * GPUS_PER_NODE)) \
    --num_machines $SLURM_NNODES \
    --rdzv_backend c10d \
    --main_process_ip $head_node_ip \
    --main_process_port 29500 \
    "
export SCRIPT="/accelerate/examples/complete_nlp_example.py"
export SCRIPT_ARGS=" \
    --mixed_precision fp16 \
    --output_dir /accelerate/examples/output \
    "
# accelerate launch does not handle several lines
export CMD="$LAUNCHER $SCRIPT $SCRIPT_ARGS"
srun $CMD
