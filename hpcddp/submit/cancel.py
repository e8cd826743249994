"""Ending what waits or runs of a study, with a note of who did."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from hpcddp.backends.base import Backend
from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.run_root import Study, run_ranges
from hpcddp.core.text import count
from hpcddp.study.status import RunState
from hpcddp.study.study_folder import study_lock
from hpcddp.study.submission_log import append, follow, latest_events, reconcile, truncate_torn_tail, user_name


def find_interrupted(study: Study, backends: Sequence[Backend]) -> None:
    """Notes the jobs of submissions that were interrupted before their ids were, where there are such."""
    if any(event.event == "intent" for event in latest_events(study).values()):
        with study_lock(study):
            for backend in backends:
                with contextlib.suppress(*([] if backend.name == "slurm" else [HpcddpError])):  # check_known names those runs
                    reconcile(study, backend)


def live_runs(study: Study, states: Sequence[RunState], points: Sequence[str]) -> list[RunState]:
    """The runs that wait or run, of `points` by the beginnings of their labels; HpcddpError where Slurm does not say."""
    for point in points:
        if not any(state.label.startswith(point) for state in states):
            known = ", ".join(dict.fromkeys(state.label for state in states))
            raise UsageError(f"no point `{point}` in this study; it has {known}")
    chosen = [state for state in states if not points or state.label.startswith(tuple(points))]
    on_slurm = {key for key, event in latest_events(study).items() if event.backend == "slurm"}
    if doubtful := [state for state in chosen if state.phase == "unknown" and state.key in on_slurm]:
        what = f"The state of {count(len(doubtful), 'run')} is unknown: {doubtful[0].detail}"
        raise HpcddpError(f"{what}. Nothing was cancelled. Run `hpcddp cancel` again when Slurm answers.")
    return [state for state in chosen if state.phase in ("queued", "running")]


def check_known(study: Study, states: Sequence[RunState], points: Sequence[str]) -> None:
    """HpcddpError names the runs of `points` whose state is unknown, for when the others are cancelled."""
    events, begun = latest_events(study), tuple(points) or ""
    doubtful = [state for state in states if state.phase == "unknown" and state.key in events and state.label.startswith(begun)]
    if doubtful:
        what = f"The state of {count(len(doubtful), 'run')} is unknown: {doubtful[0].detail}"
        raise HpcddpError(f"{what}\nRun `hpcddp cancel` again. Not cancelled: {run_ranges(state.key for state in doubtful)}")


def cancel_runs(study: Study, runs: Sequence[RunState], backends: Sequence[Backend]) -> None:
    """Calls each backend once and adds a line for each run to submissions.jsonl, under the lock that submissions take."""
    with study_lock(study):
        truncate_torn_tail(study)
        events = latest_events(study)
        mine = [events[state.key] for state in runs if state.key in events]
        for backend in backends:
            lines = [line for line in mine if line.backend == backend.name and line.job is not None]
            if lines:
                backend.cancel({str(line.job): line.name for line in lines})
                append(study, [follow(line, "cancelled", reason=user_name()) for line in lines])
