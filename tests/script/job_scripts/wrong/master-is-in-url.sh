#!/bin/bash
# After https://github.com/pytorch/pytorch/issues/76069
# finding: master-addr 7
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gres=gpu:8
srun python main_moco.py --dist-url 'tcp://localhost:0' --multiprocessing-distributed
