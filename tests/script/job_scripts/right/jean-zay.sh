#!/bin/bash
# After http://www.idris.fr/eng/jean-zay/gpu/jean-zay-gpu-torch-multi-eng.html
#SBATCH --job-name=torch-multi-gpu
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=10
#SBATCH --hint=nomultithread
#SBATCH --time=20:00:00
#SBATCH --output=torch%j.out
#SBATCH --error=torch%j.out

cd ${SLURM_SUBMIT_DIR}
module purge
module load pytorch-gpu/py3/2.2.0
set -x
srun python -u script.py --epochs 10
