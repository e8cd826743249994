#!/bin/bash
# After https://stackoverflow.com/questions/43700465 (DOS line breaks)
# finding: dos-lines 1
#SBATCH --nodes=1
#SBATCH --gres=gpu:1
python train.py
