"""Lines of submissions.jsonl, as a submission itself would write them."""

from __future__ import annotations

import time
from typing import Any

from hpcddp.core.run_root import Study
from hpcddp.study.submission_log import Event, SubmissionEvent, append


def log_event(study: Study, label: str, event: Event = "submitted", *, run: int = 1, token: str = "t", **facts: Any) -> None:
    """Adds a line on the run; on Slurm where `backend` is not given."""
    facts = {"backend": "slurm", "unix_s": time.time(), **facts}
    append(study, [SubmissionEvent(event=event, token=token, label=label, run=run, **facts)])
