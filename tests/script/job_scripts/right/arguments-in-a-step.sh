#!/bin/bash
# After https://docs.cscs.ch/tutorials/ml/llm-nanotron-training/: the step's own shell puts the arguments together
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-task=4
export CUDA_DEVICE_MAX_CONNECTIONS=1 # (1)!
srun -ul --environment=./ngc.toml bash -c "
  # the environment's own
  source venv/bin/activate
  TORCHRUN_ARGS=\"
   --master-addr=\$(scontrol show hostnames \$SLURM_JOB_NODELIST | head -n 1) \
   --master-port=\$((10000 + SLURM_JOB_ID % 20000)) \
   --node-rank=\${SLURM_PROCID} \
   --nnodes=\${SLURM_NNODES} --nproc-per-node=\${SLURM_GPUS_ON_NODE} \
  \"
  python -m torch.distributed.run \${TORCHRUN_ARGS} run_train.py --config-file c.yaml
" # (3)!
