#!/bin/bash
# After https://github.com/pytorch/pytorch/issues/126510
# finding: fixed-port 6
#SBATCH --nodes=1
#SBATCH --gres=gpu:2
accelerate launch --multi_gpu --num_processes=2 --num_machines=1 --main_process_port=29501 train.py
