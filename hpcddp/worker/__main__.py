"""`python -m hpcddp.worker`: the worker of a script that was rendered to be submitted by hand, on hosts and on SageMaker.

HPCDDP_SPEC holds the job as JSON, `study` with variables. No login side: rank 0 leaves the point's description with the records.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path

from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import JobSpec, expanded, spec_from_dict, spec_to_dict
from hpcddp.core.launcher import LOGS, write_logs_into
from hpcddp.core.run_root import Study
from hpcddp.core.study_files import describe_point
from hpcddp.worker.main import run
from hpcddp.worker.ranks import this_rank


def main() -> None:
    """Rank 0 prints its summary as the last line."""
    try:
        spec = read_spec(os.environ.get("HPCDDP_SPEC"))
    except HpcddpError as error:
        sys.exit(f"hpcddp: {error}")
    rank = this_rank(spec.backend)
    if folder := os.environ.get(LOGS):
        write_logs_into(Path(folder), rank.job, str(rank.rank))
    first = rank.rank == 0
    if first:
        describe_point(Study(Path(spec.study)), spec.point)
    summary = run(spec_to_dict(spec))
    if first:
        print(json.dumps(summary, sort_keys=True), flush=True)


def read_spec(text: str | None) -> JobSpec:
    """Of a script that people may have edited; HpcddpError says where it is wrong."""
    if not text:
        raise HpcddpError("HPCDDP_SPEC is not set. Start the worker from a script that `hpcddp render` printed.")
    try:
        spec = spec_from_dict(json.loads(text))
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError):
            near = " ".join(text[max(0, error.pos - 40) : error.pos + 20].split())
            raise HpcddpError(f"HPCDDP_SPEC is not JSON near `{near}`: {error.msg}.") from error
        raise
    return dataclasses.replace(spec, study=expanded(spec.study, "study"))


if __name__ == "__main__":
    main()
