#!/bin/bash
# After https://github.com/huggingface/accelerate/issues/2521
# finding: idle-gpus 9
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
#SBATCH --exclusive
head=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
srun accelerate launch --num_processes=4 --num_machines=2 --rdzv_backend=c10d --main_process_ip=$head --main_process_port=29500 train.py
