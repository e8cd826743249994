#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gres=gpu:2
cat <<-EOF > cfg.yaml
	master_port: 29500
	EOF
python - <<'PY'
print("srun &")
PY
srun python -m accelerate.commands.launch --config_file cfg.yaml --num_processes 4 --num_machines 2 train.py
# After https://slurm.schedmd.com/srun.html
