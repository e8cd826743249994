"""sbatch, called so that a job is queued once: an answer that is lost is looked up before anything is sent again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from hpcddp.backends import slurm_commands
from hpcddp.backends.slurm_commands import SBATCH_RETRIES, UNANSWERED, UnansweredError
from hpcddp.core.errors import FullError, HpcddpError, RefusedError

RESEND_PAUSES_S = (2.0, 10.0)
"""Pauses after a submission that did not reach its controller, before it is sent again."""

_FULL = re.compile(rf"(Assoc|QOS)\w*Submit\w*|Resource temporarily unavailable|{SBATCH_RETRIES}")
"""sbatch's words at a limit on jobs that wait or run (MaxSubmitJobs of an association or QOS, MaxJobCount of the cluster)."""


LATER = "The next `hpcddp submit` checks whether the job is queued"


def send(name: str, command: Sequence[str], find: Callable[[], str | None], unsure: str = LATER) -> str:
    """The id of the job that the command queues. `find`: the id of a job of that name, None where there surely is none, and
    HpcddpError where nobody says, to which `unsure` is the next step. RefusedError with Slurm's own words; FullError where it
    takes no more jobs for now.
    """
    for pause_s in RESEND_PAUSES_S:
        if job := _send_once(name, command, find, unsure):
            return job
        time.sleep(pause_s)
    raise HpcddpError(f"{name}: Slurm's controller answers only at times. The job is not queued. Submit again later.")


def _send_once(name: str, command: Sequence[str], find: Callable[[], str | None], unsure: str) -> str | None:
    """The job's id; None where no answer came and the job surely is not queued: it may be sent again."""
    try:
        done = slurm_commands.run_command(command)
        failed = done.returncode != 0
        text = done.stderr.strip() or done.stdout.strip() or f"sbatch exited with code {done.returncode} without a message"
        if not failed and (found := re.search(r"^Submitted batch job (\d+)", done.stdout, re.MULTILINE)):
            return found.group(1)
        if done.returncode > 0 and not UNANSWERED.search(text):
            raise _refusal(name, text)
    except UnansweredError as error:
        failed, text = True, str(error)
    unsure = f"{name}: {text}. {unsure}"
    try:
        job = find()
    except HpcddpError as error:
        raise HpcddpError(unsure) from error
    if job is None and not failed:
        raise HpcddpError(unsure)  # accepted, but where?
    if job is None and SBATCH_RETRIES in text:
        raise _refusal(name, text)
    return job


def _refusal(name: str, text: str) -> RefusedError:
    return (FullError if _FULL.search(text) else RefusedError)(f"{name}: {text}")
