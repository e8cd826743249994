"""All ranks of one node, forked after one import of torch: `srun --ntasks-per-node=1 python forked_node.py RANKS_PER_NODE`.

Sixty-four processes that each import torch do not fit a small machine; forked, they share what the import took.
"""

from __future__ import annotations

import gc
import os
import sys

from hpcddp.worker.__main__ import main as work


def main() -> int:
    """The exit code is 0 if every rank of this node ended well."""
    import torch.distributed
    import torch.nn.parallel  # noqa: F401 - imported before the fork, for all

    ranks = int(sys.argv[1])
    node, nodes = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_STEP_NUM_TASKS"])
    gc.freeze()
    children = [fork_rank(node * ranks + local, local, nodes * ranks) for local in range(ranks)]
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


def fork_rank(rank: int, local: int, world: int) -> int:
    """The process id of a rank with the variables srun would have given it."""
    child = os.fork()
    if child:
        return child
    os.environ.update(SLURM_PROCID=str(rank), SLURM_LOCALID=str(local), SLURM_STEP_NUM_TASKS=str(world))
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
