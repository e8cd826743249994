#!/bin/bash
# After https://github.com/aws-samples/awsome-distributed-training/tree/main/3.test_cases/pytorch/FSDP
#SBATCH --nodes=4 # number of nodes to use
#SBATCH --job-name=llama2-FSDP # name of your job
#SBATCH --output=logs/%x_%j.out # logfile for stdout
#SBATCH --error=logs/%x_%j.err # logfile for stderr, remove it to merge both outputs
#SBATCH --exclusive # job has exclusive use of the resource, no sharing

set -ex;
GPUS_PER_NODE=8 # 4 for G5.12x, 8 for P4/P5
export FI_PROVIDER=efa
export NCCL_DEBUG=INFO
AUTO_RESUME=""
if [ -d "/opt/sagemaker_cluster" ]; then
    echo "Detected a managed cluster.. enabling --auto-resume=1"
    AUTO_RESUME="--auto-resume=1"
fi
declare -a TORCHRUN_ARGS=(
    --nproc_per_node=$GPUS_PER_NODE
    --nnodes=$SLURM_JOB_NUM_NODES
    --rdzv_id=$SLURM_JOB_ID
    --rdzv_backend=c10d
    --rdzv_endpoint=$(hostname)
)
declare -a TRAINING_ARGS=(
    --max_context_width=4096 # one comment
    --seed=42
)
srun ${AUTO_RESUME} -l ./pt_fsdp/bin/torchrun "${TORCHRUN_ARGS[@]}" ./train.py "${TRAINING_ARGS[@]}"
