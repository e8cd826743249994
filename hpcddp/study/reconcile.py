"""Finds out what became of submissions that were interrupted between intent and answer."""

from __future__ import annotations

from hpcddp.backends.base import Backend
from hpcddp.core.run_root import Study
from hpcddp.study.submission_log import SubmissionEvent, append, follow, latest_events, truncate_torn_tail


def reconcile(study: Study, backend: Backend) -> list[SubmissionEvent]:
    """Logs each as submitted or lost, by what the backend finds of it; the lines of those that have a job.

    The caller holds the study's lock.
    """
    truncate_torn_tail(study)
    intents = [event for event in latest_events(study).values() if event.event == "intent" and event.backend == backend.name]
    found = {names: backend.find(study, *names) for names in dict.fromkeys((intent.name, intent.token) for intent in intents)}
    jobs = [(intent, found[intent.name, intent.token]) for intent in intents]
    lines = [follow(intent, "submitted", job=intent.job_of(job)) if job else follow(intent, "lost") for intent, job in jobs]
    append(study, lines)
    return [line for line in lines if line.job is not None]
