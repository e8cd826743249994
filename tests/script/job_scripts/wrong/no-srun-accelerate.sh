#!/bin/bash
# After https://github.com/huggingface/accelerate/issues/2816 (I forgot to use srun)
# finding: no-srun 9
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
#SBATCH --exclusive
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
accelerate launch --num_processes 8 --num_machines 2 --machine_rank 0 --main_process_ip $head --main_process_port 29500 train.py
