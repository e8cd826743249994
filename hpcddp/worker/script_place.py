"""Where a script of the user's own runs: its folder first on the path, its words, and what torch reads of its rank."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import ScriptPlace
from hpcddp.core.own_script import arguments
from hpcddp.core.point import Workload
from hpcddp.worker.ranks import Rank


def enter_place(place: ScriptPlace, workload: Workload) -> Path:
    """As Python runs it, in the sweep's folder; the script. HpcddpError where it is not there."""
    script = Path(place.file)
    if not script.is_file():
        raise HpcddpError(f"{script} does not exist on this node. Put the script in a folder that all nodes can read.")
    sys.argv[:] = [str(script), *arguments(workload)]
    sys.path.insert(0, str(script.parent))
    if os.path.isdir(place.folder):
        os.chdir(place.folder)
    return script


def set_rank_variables(rank: Rank, port: int) -> None:
    """What torch's env:// and the frameworks read; where torchrun started the rank it has set them."""
    if rank.launcher == "torchrun":
        return
    numbers = {
        "RANK": rank.rank,
        "LOCAL_RANK": rank.local_rank,
        "WORLD_SIZE": rank.world,
        "LOCAL_WORLD_SIZE": rank.ranks_per_node,
        "GROUP_RANK": rank.rank // rank.ranks_per_node,
        "MASTER_PORT": port,
    }
    os.environ.update({name: str(value) for name, value in numbers.items()}, MASTER_ADDR=rank.master_addr)
