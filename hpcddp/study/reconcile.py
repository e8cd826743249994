"""What became of submissions that were interrupted between intent and answer."""

from __future__ import annotations

from hpcddp.backends.base import Backend
from hpcddp.core.run_root import Study
from hpcddp.study.submission_log import Told, follow, last_told, mend, tell_all


def settle(study: Study, backend: Backend) -> list[Told]:
    """Looks them up and notes it; the new lines of those that have a job. The caller holds the study's lock."""
    mend(study)
    intents = [told for told in last_told(study).values() if told.event == "intent" and told.backend == backend.name]
    found = {names: backend.find(study, *names) for names in dict.fromkeys((told.name, told.token) for told in intents)}
    jobs = [(told, found[told.name, told.token]) for told in intents]
    lines = [follow(told, "submitted", job=told.job_of(job)) if job else follow(told, "lost") for told, job in jobs]
    tell_all(study, lines)
    return [line for line in lines if line.job is not None]
