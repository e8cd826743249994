"""`hpcddp submit --wait`: how the runs are, until they are over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Collection

    from hpcddp.backends.base import Backend
    from hpcddp.core.run_key import RunKey
    from hpcddp.core.run_root import Study


def until_over(study: Study, backend: Backend, labels: Collection[str], unsent: Collection[RunKey] = ()) -> set[str]:
    """A line on stderr whenever something has changed; the phases of the runs of these points once none waits or runs: of one
    that is yet to be sent again, `missing`.
    """
    import time

    from hpcddp.backends.base import pause_s
    from hpcddp.study.status import study_states
    from hpcddp.study.status_text import progress_line, status_table
    from hpcddp.study.submission_log import latest_events

    mine = {key for key, told in latest_events(study).items() if told.backend == backend.name and told.job is not None}
    shown, begun_s = None, time.monotonic()
    while True:
        states = [state for state in study_states(study, backend) if state.label in labels and state.in_sweep]
        line = progress_line(states)
        if line != shown:
            click.echo(line, err=True)
            shown = line
        doubtful = (state for state in states if state.phase == "unknown" and state.key in mine)
        if not any(state.phase in ("queued", "running") for state in states) and not any(doubtful):
            break  # a controller that does not answer just now has not ended a job
        time.sleep(pause_s(time.monotonic() - begun_s))
    click.echo(status_table(states))
    return {"missing" if state.key in unsent else state.phase for state in states}
