#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --gres=gpu:4
cat <<EOF > cfg.yaml
a: 1
EOF
export MASTER_PORT=29500
srun python train.py
# finding: fixed-port 6
# After https://github.com/OpenNMT/OpenNMT-py/issues/1298
