#!/bin/bash
# After https://docs.pytorch.org/docs/stable/elastic/run.html, with both of its forms
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
get_free_port() { python -c "import socket; s=socket.socket(); s.bind(('', 0)); print(s.getsockname()[1])"; }
run_exp() {
    num_gpus=$(nvidia-smi -L | wc -l)
    SCRIPT_ARGS="train.py \
    --lr 0.1 \
    "
    if [[ $SLURM_NNODES -gt 1 ]]; then
        head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
        srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=${num_gpus} --node_rank=${SLURM_NODEID} \
            --rdzv_backend=c10d --rdzv_endpoint=$head:$((10000 + SLURM_JOB_ID % 20000)) ${SCRIPT_ARGS}
    else
        MASTER_ADDR=localhost torchrun --standalone --nproc_per_node ${num_gpus} ${SCRIPT_ARGS}
    fi
}
run_exp
