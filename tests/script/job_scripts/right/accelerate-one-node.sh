#!/bin/bash
# After https://github.com/huggingface/accelerate/blob/main/examples/slurm/submit_multigpu.sh
#SBATCH --job-name=multigpu
#SBATCH -D .
#SBATCH --output=O-%x.%j
#SBATCH --error=E-%x.%j
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1         # number of MP tasks
#SBATCH --gres=gpu:4                # number of GPUs per node
#SBATCH --cpus-per-task=160
#SBATCH --time=01:59:00             # maximum execution time (HH:MM:SS)

source activateEnvironment.sh
export ACCELERATE_DIR="${ACCELERATE_DIR:-/accelerate}"
srun accelerate launch --num_processes 4 $ACCELERATE_DIR/examples/complete_nlp_example.py --mixed_precision fp16
