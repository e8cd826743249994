"""Questions to a controller that may be away for a while, and what became of a submission whose answer was lost: asked until it
is sure, since a job that is sent again is paid twice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from hpcddp.backends.slurm_commands import PATIENCE_S, UnansweredError
from hpcddp.core.errors import HpcddpError

Answer = TypeVar("Answer")

PAUSES_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
"""Between questions to a controller that does not answer; each takes some 10 s by itself. A restart takes less than all."""

SURE_S = 2.0
"""A controller that comes back works through what it was sent, not always in that order: what is missing is looked for twice."""


def look_up(look: Callable[[], str | None]) -> str | None:
    """The job that `look` finds, None where there surely is none; HpcddpError where the controller stays away."""
    found = patiently(look)
    if found is None:
        time.sleep(SURE_S)
        found = patiently(look)
    return found


def patiently(question: Callable[[], Answer]) -> Answer:
    """Asked again while nobody answers, for the time that a controller takes to restart; then UnansweredError."""
    for pause_s in PAUSES_S:
        try:
            return question()
        except UnansweredError:
            time.sleep(pause_s)
    return question()


def wait_for_sbatch(folder: Path) -> None:
    """Returns when no sbatch works on the job of that folder: one whose hpcddp was killed goes on, and may yet queue the job.

    Of this machine; HpcddpError names one that does not end.
    """
    deadline = time.monotonic() + PATIENCE_S
    while pid := next(_at_work(folder.name), None):
        if time.monotonic() > deadline:
            raise HpcddpError(f"{folder.name}: an earlier sbatch is still at it (process {pid}): end it and submit again")
        time.sleep(0.1)


def _at_work(name: str) -> Iterator[str]:
    """Processes with sbatch's option that makes a folder of that name a job's working directory."""
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        if any(word.startswith(b"--chdir=") and word.endswith(os.fsencode(f"/{name}")) for word in words):
            yield pid
