"""`python -m hpcddp.worker`: the worker of a script that was rendered to be submitted by hand, under srun.

HPCDDP_SPEC holds the job as JSON; its `study` may contain variables, which are filled in here. The study has no login side, so
rank 0 leaves the point's description beside the records.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import expanded, spec_from_dict, spec_to_dict
from hpcddp.core.run_root import Study
from hpcddp.core.study_files import describe_point
from hpcddp.worker.main import run
from hpcddp.worker.ranks import this_rank


def main() -> None:
    """Rank 0 prints its summary as the last line."""
    text = os.environ.get("HPCDDP_SPEC")
    if not text:
        raise HpcddpError("HPCDDP_SPEC is not set: start the worker from a script that `hpcddp render` printed")
    given = spec_from_dict(json.loads(text))
    spec = dataclasses.replace(given, study=expanded(given.study, "study"))
    first = this_rank(spec.backend).rank == 0
    if first:
        describe_point(Study(Path(spec.study)), spec.point)
    summary = run(spec_to_dict(spec))
    if first:
        print(json.dumps(summary, sort_keys=True), flush=True)


if __name__ == "__main__":
    main()
