#!/bin/bash
#SBATCH --nodes=1 --gres=gpu:2
x=$((1<<4)) # it's John's
IDS=$(echo "a;b" | tr ';' ' ')
awk -F '&' '{print $1}' f
srun torchrun --standalone --nproc_per_node=2 train.py --sep '&'
echo $x ${#IDS} "$#"
# After https://slurm.schedmd.com/srun.html
