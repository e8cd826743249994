#!/bin/bash
# After https://superuser.com/questions/1466043 (a dash from a web page)
# finding: odd-character 4
#SBATCH –-nodes=2
#SBATCH --gres=gpu:1
srun hostname
