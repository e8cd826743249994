"""`hpcddp submit --wait`: how the runs are, until they are over."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from hpcddp.backends.base import Backend, pause_s
from hpcddp.core.run_root import Study
from hpcddp.study.data_jobs import data_job_states, live_words
from hpcddp.study.status import RunState, study_states
from hpcddp.study.status_text import progress_line
from hpcddp.study.submission_log import latest_events


def wait_until_over(study: Study, backend: Backend, labels: Collection[str], on_change: Callable[[str], None]) -> list[RunState]:
    """The states of the runs of these points once none waits or runs any more; `on_change` gets a line whenever one changes."""
    submitted = {key for key, event in latest_events(study).items() if event.backend == backend.name and event.job is not None}
    shown, begun_s = None, time.monotonic()
    while True:
        states = [state for state in study_states(study, backend) if state.label in labels and state.in_sweep]
        line = "; ".join([progress_line(states), *live_words(data_job_states(study))])
        if line != shown:
            on_change(line)
            shown = line
        live = any(state.phase in ("queued", "running") for state in states)
        doubtful = any(state.phase == "unknown" and state.key in submitted for state in states)
        if not live and not doubtful:  # a controller that does not answer just now has not ended a job
            return states
        time.sleep(pause_s(time.monotonic() - begun_s))
