#!/bin/bash
# After https://github.com/TRI-ML/prismatic-vlms/issues/39, in a container
# finding: launcher-in-every-task 9
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8              # 1 task per GPU
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
export MASTER_ADDR=$(scontrol show hostname $SLURM_NODELIST | head -n 1)
srun --container-image=/images/t.sqsh torchrun --nproc_per_node=$SLURM_GPUS_PER_NODE --nnodes=$SLURM_NNODES --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:29500 finetune.py --config c.yaml
