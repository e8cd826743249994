#!/bin/bash
# n02-g1-b784-d332cf957a82 on aws-g5: 2 nodes x 1 rank, resnet18 on imagenet

fail() { echo "hpcddp: $1" >&2; exit "${2:-1}"; }

export OMP_NUM_THREADS=4 PYTHONUNBUFFERED=1

# --- launch ---
# On each host: bash FILE NUMBER, with its number below; a second word is the name of the job. The hosts' Python needs hpcddp.
export HPCDDP_JOB=${2:-1} HPCDDP_RUNS=${HPCDDP_RUNS:-$PWD/jobs}
HPCDDP_SPEC=$(tr -d '\n' <<'HPCDDP_SPEC_END'
{
  "backend": "hosts",
  "point": {
    "cluster": "aws-g5",
    "layout": {
      "launcher": "torchrun", "node_type": "g5-2xlarge", "nodes": 2, "physical_cores_per_rank": 4
    },
    "measure": {"steps": 200, "warmup_steps": 20},
    "workload": {
      "batch_per_gpu": 784, "data": {"name": "imagenet", "root": "/data"}, "model": "resnet18",
      "optimizer": {"lr": 0.001, "weight_decay": 0.0001}, "precision": "fp16"
    }
  },
  "profile": {
    "default_node_type": "g5-2xlarge",
    "fabric": {"gbps_per_node": 5.0, "name": "EC2 network, no EFA", "protocol": "tcp"},
    "node_types": {"g5-2xlarge": {"gpu": "NVIDIA A10G", "gpus": 1, "physical_cores": 4, "smt": 2}}
  },
  "study": "$HPCDDP_RUNS/adhoc"
}
HPCDDP_SPEC_END
)
export HPCDDP_SPEC PYTHONSAFEPATH=1

case "${1:-}" in
  0) # ec2-user@10.0.0.1
    PET_NODE_RANK=0 PET_MASTER_ADDR=10.0.0.1 PET_MASTER_PORT=29500 python3 -u -m torch.distributed.run --nnodes=2 --nproc-per-node=1 --max-restarts=0 --monitor-interval=0.1 -m hpcddp.worker ;;
  1) # ec2-user@10.0.0.2
    PET_NODE_RANK=1 PET_MASTER_ADDR=10.0.0.1 PET_MASTER_PORT=29500 python3 -u -m torch.distributed.run --nnodes=2 --nproc-per-node=1 --max-restarts=0 --monitor-interval=0.1 -m hpcddp.worker ;;
  *) fail "give the number of this host, 0 to 1" ;;
esac
rc=$?
exit "$rc"
