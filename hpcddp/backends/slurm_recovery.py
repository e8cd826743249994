"""What became of a submission whose answer was lost, and queries of a controller that may be away for a while. They are repeated
until it is sure, since a job that is sent again is paid twice.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from hpcddp.backends import slurm_commands
from hpcddp.backends.slurm_commands import COMMAND_TIMEOUT_S, SILENT_S, JobRow, UnansweredError, away_s, say_absence
from hpcddp.core.errors import HpcddpError
from hpcddp.core.job_ids import base_id
from hpcddp.core.text import one_line

Answer = TypeVar("Answer")

RETRY_PAUSES_S = (1.0, 2.0, 4.0, 8.0, 15.0)
"""Between queries of a controller that does not answer; each takes some 10 s by itself. A restart takes less than all."""

GIVE_UP_S = 30.0
"""A controller that is away for so long is asked no more: with the last query, a command of hpcddp ends within a minute."""

SEARCH_AGAIN_S = 2.0
"""A controller that comes back works through what it was sent, not always in that order: what is missing is searched twice."""


def find_job(name: str, folder: Path) -> str | None:
    """The id of the job of that name and folder, None where there surely is none; HpcddpError where the controller stays away.
    Among the jobs in the queue, then among those of the last seven days where there is accounting.
    """
    wait_for_sbatch(folder)
    found = retry(lambda: _search(name, folder.name))
    if found is None:
        time.sleep(SEARCH_AGAIN_S)
        found = retry(lambda: _search(name, folder.name))
    return found


def retry(query: Callable[[], Answer]) -> Answer:
    """Repeated while nobody answers, for the time that a controller takes to restart; then UnansweredError."""
    for pause_s in RETRY_PAUSES_S:
        try:
            return query()
        except UnansweredError as error:
            if away_s() > GIVE_UP_S:
                raise
            say_absence(one_line(str(error)))
            time.sleep(pause_s)
    return query()


def wait_for_sbatch(folder: Path) -> None:
    """Returns when no sbatch works on the job of that folder: one whose hpcddp was killed goes on, and may yet queue the job.
    Of this machine; HpcddpError names one that does not end.
    """
    start_s = time.monotonic()
    while pid := next(_sbatch_processes(folder.name), None):
        if time.monotonic() - start_s > COMMAND_TIMEOUT_S:
            raise HpcddpError(f"{folder.name}: an earlier sbatch is still running. Stop it with `kill {pid}`, then submit again.")
        if time.monotonic() - start_s > SILENT_S:
            say_absence(f"an earlier sbatch of {folder.name} is still running (process {pid})")
        time.sleep(0.1)


def _sbatch_processes(folder: str) -> Iterator[str]:
    """Ids of processes with sbatch's option that makes a folder of that name a job's working directory."""
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        if any(word.startswith(b"--chdir=") and word.endswith(os.fsencode(f"/{folder}")) for word in arguments):
            yield pid


def _search(name: str, folder: str) -> str | None:
    found = _in_folder(slurm_commands.jobs_named([name]), name, folder)
    if found is None:
        with contextlib.suppress(HpcddpError):
            found = _in_folder(slurm_commands.accounted_by_name(name), name, folder)
    return found


def _in_folder(rows: Mapping[str, JobRow], name: str, folder: str) -> str | None:
    return next((base_id(job) for job, row in rows.items() if row.name == name and Path(row.workdir).name == folder), None)
