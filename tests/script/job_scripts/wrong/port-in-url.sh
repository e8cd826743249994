#!/bin/bash
# After https://github.com/pytorch/examples/tree/main/imagenet
# finding: fixed-port 6
#SBATCH --nodes=2 --ntasks-per-node=1 --gres=gpu:4
head=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
srun bash -c "python main.py --dist-url 'tcp://$head:23456' --world-size 2 --rank \$SLURM_PROCID --multiprocessing-distributed"
