"""The queue of runs on this machine: folders `.jobs/L0001/` of a study, with spec.json (what to run) and state.json.

`queue.lock` is held while the queue changes, `runner.lock` by the runner as long as it lives. The submitting process locks
runner.lock and the runner that it starts inherits the handle, so there is never a second runner and never a gap; the kernel
releases the lock when the runner ends, however that happens. Status reads runner.json instead (process and its start), and never
takes that lock.

These locks are flock's, that of a study (core/lock.py) is made of links, since neither can do the other's work. A link cannot be
inherited by another process, and who may only read a study cannot take it (tried in place of queue.lock, which status takes:
`Permission denied`). flock is refused by some shared file systems, or kept to one machine, and a study is submitted to from
several login nodes; this queue is of one machine.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hpcddp.core.errors import HpcddpError
from hpcddp.core.lock import HostProcess
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import added_later, decode, encode

Phase = Literal["queued", "running", "done", "failed"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """spec.json: one run to be done here."""

    name: str
    token: str
    entry: str
    """`package.module:function`, called with `spec` in every rank."""
    spec: Mapping[str, Any]
    """Of jobspec.spec_to_dict; decoded only where it runs, since status reads the queues of older versions too."""
    code: str
    """Folder name of the snapshot, below the study's `.code`."""
    python: str
    ranks: int
    threads_per_rank: int
    walltime_s: float
    device: Literal["cuda", "cpu"]
    trusted: tuple[int, ...] = ()
    """Groups, by number, that may write where the run's code is."""
    hosts: tuple[str, ...] = added_later(())
    """Where it runs by ssh; none: here."""


@dataclass(frozen=True, kw_only=True)
class State:
    """state.json: how far it has come."""

    phase: Phase
    reason: str | None = None


def add(study: Study, entry: Entry) -> str:
    """Queues the run and gives it the next id; the queue's lock is held by the caller."""
    study.jobs.mkdir(parents=True, exist_ok=True)
    number = max((int(job[1:]) for job in jobs(study)), default=0)
    while True:
        number += 1
        job = f"L{number:04d}"
        with contextlib.suppress(FileExistsError):
            study.job_dir(job).mkdir()
            break
    write_json(study.job_dir(job) / "spec.json", encode(entry))
    write_job_state(study, job, "queued")
    return job


def jobs(study: Study) -> list[str]:
    """Ids of all runs that were ever queued here, oldest first."""
    names = (path.name for path in study.jobs.glob("L*"))
    return sorted((name for name in names if name[1:].isdigit()), key=lambda name: int(name[1:]))


def next_queued(study: Study) -> str | None:
    """The oldest run that waits."""
    return next((job for job in jobs(study) if _phase(study, job) == "queued"), None)


def read_entry(study: Study, job: str) -> Entry:
    """What a queued run is to run: its spec.json."""
    return decode(Entry, json.loads((study.job_dir(job) / "spec.json").read_text(encoding="utf-8")))


def read_state(study: Study, job: str) -> State | None:
    """None for a folder that is not there, or that a submission which was interrupted left without its files."""
    try:
        return decode(State, json.loads((study.job_dir(job) / "state.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def running_s(study: Study, job: str) -> float:
    """Seconds since a running run was started."""
    return time.time() - (study.job_dir(job) / "state.json").stat().st_mtime


def write_job_state(study: Study, job: str, phase: Phase, reason: str | None = None) -> None:
    """Writes how far a queued run is: its state.json."""
    write_json(study.job_dir(job) / "state.json", encode(State(phase=phase, reason=reason)))


def fail_all(study: Study, reasons: Mapping[str, str]) -> None:
    """Marks every run that is not over as failed; `reasons`: by its phase, `running` and `queued`."""
    for job in jobs(study):
        phase = _phase(study, job)
        if phase is not None and phase in reasons:
            write_job_state(study, job, "failed", reasons[phase])


def _phase(study: Study, job: str) -> Phase | None:
    state = read_state(study, job)
    return None if state is None else state.phase


def cancel_file(study: Study, job: str) -> Path:
    """Its presence asks the runner to end that run."""
    return study.job_dir(job) / "cancel"


@contextlib.contextmanager
def queue_lock(study: Study) -> Iterator[None]:
    """The queue does not change while this is held, except that a run that is running may end."""
    handle = _lock(study.jobs / "queue.lock", fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(handle)


def take_runner_lock(study: Study) -> int | None:
    """A handle that holds the runner's lock; None while a runner is alive."""
    try:
        return _lock(study.jobs / "runner.lock", fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None


def _lock(file: Path, how: int) -> int:
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.parent.is_symlink():
        raise HpcddpError(f"{file.parent} is a link, but must be a folder. Remove the link.")
    try:
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EROFS):
            raise
        # a reader of another user's study, or of one on a file system that is mounted read-only
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, how)
    except OSError as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            raise
        raise HpcddpError(f"{file}: cannot be locked ({error.strerror}). Choose another file system with --runs.") from error
    return handle


def write_runner(study: Study, pid: int) -> None:
    """Notes which process works through the queue."""
    write_json(study.jobs / "runner.json", encode(HostProcess.here(pid)))


def runner_alive(study: Study) -> bool | None:
    """Whether the last runner still lives; None where that is not known, as on another host."""
    try:
        runner = decode(HostProcess, json.loads((study.jobs / "runner.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        return False
    return runner.is_alive()
