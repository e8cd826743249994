#!/bin/bash
# After https://github.com/NVIDIA/Megatron-LM/blob/main/examples/post_training/modelopt/slurm/sbatch.sh: PATH is that of the image
#SBATCH --nodes=1 --ntasks-per-node=4 --gpus-per-node=4
#SBATCH --dependency=singleton
[ $# -gt 0 ] || exit -1
srun -l --mpi=pmix --container-image="$IMAGE" --export "CKPT=${CKPT},SETUP=${SETUP}" bash "$1"
