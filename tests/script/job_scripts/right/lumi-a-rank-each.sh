#!/bin/bash
# After https://github.com/Lumi-supercomputer/Getting_Started_with_AI_workshop (a rank for each GPU)
#SBATCH --account=project_465000001
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --exclusive
#SBATCH --time=0:15:00

export MASTER_ADDR=$(scontrol show hostname "$SLURM_NODELIST" | head -n1)
export MASTER_PORT=29500
export WORLD_SIZE=$SLURM_NPROCS
CPU_BIND_MASKS="0x00fe000000000000,0xfe00000000000000,0x0000000000fe0000,0x00000000fe000000,0x00000000000000fe,0x000000000000fe00,0x000000fe00000000,0x0000fe0000000000"
srun --cpu-bind=v,mask_cpu=$CPU_BIND_MASKS singularity exec $SIF \
  bash -c 'export RANK=$SLURM_PROCID && export LOCAL_RANK=$SLURM_LOCALID && python -u train.py'
