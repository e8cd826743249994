"""Jobs that a command waits for: all are submitted, and none outlives a command that nobody waits for any longer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from hpcddp.backends.base import Backend, JobState, Submission, pause_s
from hpcddp.core.errors import HpcddpError


def run_short_jobs(submissions: Sequence[Submission], backend: Backend) -> list[tuple[str, JobState]]:
    """Checks and submits all, and waits; the id and the last state of each, in order."""
    for submission in submissions:
        backend.check(submission)
    jobs: dict[str, str] = {}
    try:
        for submission in submissions:
            jobs[backend.submit(submission)] = submission.name
        states = wait_for_ends(jobs, backend)
    except (KeyboardInterrupt, HpcddpError):
        if jobs:
            backend.cancel(jobs)  # nobody is left to hear what they find
        raise
    return [(job, states[job]) for job in jobs]


def wait_for_ends(jobs: Mapping[str, str], backend: Backend) -> Mapping[str, JobState]:
    """Until these jobs (id -> name) have ended, also while their cluster does not answer; their states then."""
    begun_s = time.monotonic()
    while True:
        states = backend.poll(jobs)
        if all(state.phase in ("done", "failed") for state in states.values()):
            return states
        time.sleep(pause_s(time.monotonic() - begun_s))
