#!/bin/bash
# After https://docs.csc.fi/support/tutorials/ml-multi/ (accelerate, with the number of processes of four GPUs a node)
# finding: two-ranks-a-gpu 10
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:v100:2
#SBATCH --cpus-per-task=20
GPUS=4
ARGS="--multi_gpu --num_machines=$SLURM_NNODES --mixed_precision=fp16 --main_process_ip=$(hostname -i)"
srun accelerate launch $ARGS --num_processes=$(expr $SLURM_NNODES \* $GPUS) --main_process_port=$((10000 + SLURM_JOB_ID % 20000)) train.py
