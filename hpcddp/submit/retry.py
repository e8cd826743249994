"""Submission to a cluster that may take no more jobs for now, retried until it does."""

from __future__ import annotations

import time
from dataclasses import replace

from hpcddp.backends.base import Backend, pause_s
from hpcddp.core.errors import FullError
from hpcddp.core.run_root import Study
from hpcddp.submit.submission_plan import SubmissionPlan
from hpcddp.submit.submit import SubmittedRun, submit_runs


def submit_accepted(study: Study, plan: SubmissionPlan, backend: Backend, submitted: list[SubmittedRun]) -> str | None:
    """Adds to `submitted` what the cluster takes now; why it does not take all, where it does not."""
    try:
        submit_runs(study, plan, backend, submitted.append)
    except FullError as error:
        return str(error)
    return None


def retry_until_accepted(study: Study, plan: SubmissionPlan, backend: Backend, submitted: list[SubmittedRun]) -> str | None:
    """The same, after waiting until the cluster takes the first run, or the whole of one allocation.

    One run is sent at a time: each attempt to submit an array would try every half of it too.
    """
    begun_s = time.monotonic()
    first = plan if plan.one_allocation else replace(plan, max_jobs=1)
    is_full = True
    while is_full and not submitted:
        time.sleep(pause_s(time.monotonic() - begun_s))
        is_full = submit_accepted(study, first, backend, submitted) is not None
    return submit_accepted(study, replace(plan, max_jobs=plan.max_jobs and plan.max_jobs - 1), backend, submitted)
