#!/bin/bash
#SBATCH -N2 -n2 -c8 --gres=gpu:2
if [ "$SLURM_NNODES" -gt 1 ]; then
  srun python -m torch.distributed.run --nnodes $SLURM_NNODES --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint $(hostname):0 t.py |& tee log
else
  torchrun --standalone --nproc_per_node 2 t.py
fi
# After https://slurm.schedmd.com/srun.html
