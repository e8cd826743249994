"""What became of submissions that were interrupted between intent and answer."""

from __future__ import annotations

from hpcddp.backends.base import Backend
from hpcddp.core.run_root import Study
from hpcddp.study.submission_log import SubmissionEvent, append, follow, latest_events, truncate_torn_tail


def reconcile(study: Study, backend: Backend) -> list[SubmissionEvent]:
    """Looks them up and notes it; the new lines of those that have a job. The caller holds the study's lock."""
    truncate_torn_tail(study)
    intents = [told for told in latest_events(study).values() if told.event == "intent" and told.backend == backend.name]
    found = {names: backend.find(study, *names) for names in dict.fromkeys((told.name, told.token) for told in intents)}
    jobs = [(told, found[told.name, told.token]) for told in intents]
    lines = [follow(told, "submitted", job=told.job_of(job)) if job else follow(told, "lost") for told, job in jobs]
    append(study, lines)
    return [line for line in lines if line.job is not None]
