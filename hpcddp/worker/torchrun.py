"""torchrun on one node, as `bootstrap.py --module hpcddp.worker.torchrun FOLDER OPTIONS... SCRIPT ARGUMENTS...` starts it.

It runs torch's own torchrun; if a rank fails, it notes in FOLDER which one, since whoever started this sees torchrun alone.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import parse_args, run

from hpcddp.core.launcher import forget_failure, note_failure


def main() -> None:
    """Returns when all ranks of this node have come to their end; exits with 1 when one has failed."""
    folder, node, arguments = Path(sys.argv[1]), os.environ["PET_NODE_RANK"], sys.argv[2:]
    forget_failure(folder, node)
    try:
        with tempfile.TemporaryDirectory(prefix="hpcddp-torchrun-") as logs:  # torch leaves its own, one a job, on every node
            run(parse_args(["--log-dir", logs, *arguments]))  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
        sys.exit(f"hpcddp: {note_failure(folder, node, codes)}")


if __name__ == "__main__":
    main()
