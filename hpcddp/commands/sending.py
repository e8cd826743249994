"""`hpcddp submit` in front of a cluster that takes no more jobs for now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcddp.commands.options import remark

if TYPE_CHECKING:
    from hpcddp.backends.base import Backend
    from hpcddp.core.run_root import Study
    from hpcddp.submit.submission_plan import SubmissionPlan
    from hpcddp.submit.submit import SubmittedRun


def send(plan: SubmissionPlan, study: Study, backend: Backend, submitted: list[SubmittedRun]) -> bool:
    """Adds what was submitted; False where the cluster did not take all, which is said."""
    from hpcddp.core.errors import FullError
    from hpcddp.submit.submit import submit_runs

    try:
        submit_runs(study, plan, backend, submitted.append)
    except FullError as error:
        remark(str(error))
        return False
    return True


def retry_until_accepted(part: SubmissionPlan, study: Study, backend: Backend, submitted: list[SubmittedRun]) -> None:
    """Sends part of an order until it is taken; of one run: each try with an array would be one with every half of it too."""
    import time
    from contextlib import suppress

    from hpcddp.backends.base import pause_s
    from hpcddp.core.errors import FullError
    from hpcddp.submit.submit import submit_runs

    begun_s = time.monotonic()
    while not submitted:
        time.sleep(pause_s(time.monotonic() - begun_s))
        with suppress(FullError):
            if not submit_runs(study, part, backend, submitted.append):
                return  # what was missing waits or runs meanwhile
