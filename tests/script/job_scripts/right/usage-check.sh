#!/usr/bin/env bash
# After https://docs.lightning.ai/docs/pytorch/stable/clouds/cluster_advanced.html, with arguments of its own
#SBATCH	--nodes=2
#SBATCH --gres=gpu:a100:4 --ntasks-per-node=4   # it's one a GPU
#SBATCH --comment="two words" --mail-type=END,FAIL
if [ $# -lt 1 ]; then echo "usage: $0 CONFIG"; exit 1; fi
ARGS="--config $1"
ARGS+=" --trainer.devices=4"
case $SLURM_JOB_PARTITION in
  (dev) N=1;;
  *) N=2;;
esac
until srun --kill-on-bad-exit python3.11 -u fit.py $ARGS --trainer.num_nodes=$N; do
  ((tries++ < 3)) || exit 1
done
