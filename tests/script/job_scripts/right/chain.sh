#!/bin/bash
# After https://slurm.schedmd.com/sbatch.html: it submits a job of its own
#SBATCH --nodes=1
#SBATCH --gres=gpu:2
srun torchrun --standalone --nproc_per_node=2 train.py
sbatch --dependency=afterok:$SLURM_JOB_ID <<EOT
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gres=gpu:1
export MASTER_PORT=29500
srun python test.py
EOT
