"""What measures the nodes of a job before its runs: a submission made from that of a run."""

from __future__ import annotations

import dataclasses

from hpcddp.backends.base import Submission

ENTRY = "hpcddp.worker.preflight.job:run"

TITLE = "preflight"
"""Of its job, or of its step in a job for runs."""


def preflight_submission(run: Submission) -> Submission:
    """On the run's layout, each rank started by the backend."""
    layout = dataclasses.replace(run.spec.point.layout, launcher="direct")
    spec = dataclasses.replace(run.spec, point=dataclasses.replace(run.spec.point, layout=layout))
    return dataclasses.replace(run, spec=spec, entry=ENTRY, title=TITLE)
