#!/bin/bash
# After https://github.com/huggingface/accelerate/issues/1239
# finding: nnodes 8
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
head=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
srun accelerate launch --num_machines 4 --rdzv_backend c10d --main_process_ip $head --main_process_port $((10000 + SLURM_JOB_ID % 20000)) train.py
