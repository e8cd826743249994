#!/bin/bash
# After https://docs.lumi-supercomputer.eu/runjobs/scheduled-jobs/lumig-job/ (a wrapper chooses the GPU)
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=10:00
cat << EOF > select_gpu
#!/bin/bash
#SBATCH is no option here
export ROCR_VISIBLE_DEVICES=\$SLURM_LOCALID
export MASTER_ADDR=localhost
exec \$*
EOF
chmod +x ./select_gpu
CPU_BIND="mask_cpu:fe000000000000,fe00000000000000"
CPU_BIND="${CPU_BIND},fe0000,fe000000"
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --cpu-bind=${CPU_BIND} ./select_gpu python3 train.py --nodes 2
rm -rf ./select_gpu
