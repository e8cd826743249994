#!/bin/bash
# After https://github.com/huggingface/accelerate/issues/2816 (SLURM_NODEID always resulted in 0)
# finding: too-early 12
#SBATCH --time=2-00:00:00
#SBATCH --ntasks-per-node=1
#SBATCH --nodes=2
#SBATCH --gres=gpu:4
#SBATCH --exclusive
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
LAUNCHER="accelerate launch --num_processes 8 --num_machines 2 --machine_rank $SLURM_NODEID --main_process_ip $MASTER_ADDR --main_process_port 29500"
CMD="train.py --epochs 1"
srun bash -c "$LAUNCHER $CMD"
