"""Slurm as a backend that queues everything, or as stand-ins for its commands: both say what a test tells them.

What callers make of their answers is tested exactly.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hpcddp.backends.base import Batch, JobState, Submission
from hpcddp.core.run_root import Study


class FakeBackend:
    """Queues everything; `states` says what became of a job, `on_submit` may refuse or break off, once it is queued."""

    name = "slurm"

    def __init__(self, states: Mapping[str, JobState] | None = None) -> None:
        self.states = dict(states or {})
        self.queued: dict[str, Submission] = {}
        self.batches_taken: dict[str, Batch] = {}
        self.polled: list[dict[str, str]] = []
        self.on_submit: Callable[[Submission], None] = lambda submission: None

    @contextmanager
    def breaking_off(self, *, arrived: bool) -> Iterator[None]:
        """Whoever submits is gone before there is an answer; whether the job had `arrived`."""

        def break_off(submission: Submission) -> None:
            if not arrived:
                self.queued.clear()
            raise KeyboardInterrupt

        before, self.on_submit = self.on_submit, break_off
        yield
        self.on_submit = before

    def check(self, submission: Submission) -> None:
        """Takes everything."""

    def submit(self, submission: Submission) -> str:
        job = str(100 + len(self.queued))
        self.queued[job] = submission
        self.on_submit(submission)
        return job

    def batches(self, submissions: Sequence[Submission]) -> list[Batch]:
        return [Batch(submissions=(submission,)) for submission in submissions]

    def submit_batch(self, batch: Batch) -> list[str]:
        if batch.one_allocation is None:
            return [self.submit(submission) for submission in batch.submissions]
        self.batches_taken[str(100 + len(self.queued))] = batch
        job = self.submit(batch.submissions[0])
        return [f"{job}+{task}" for task in range(len(batch.submissions))]

    def poll(self, jobs: Mapping[str, str]) -> dict[str, JobState]:
        self.polled.append(dict(jobs))
        return {job: self.states.get(job, JobState(phase="queued", detail="just submitted")) for job in jobs}

    def cancel(self, jobs: Mapping[str, str]) -> None:
        """Nothing runs."""

    def find(self, study: Study, name: str, token: str) -> str | None:
        names = {job: self.batches_taken[job].name if job in self.batches_taken else one.name for job, one in self.queued.items()}
        return next((job for job, one in self.queued.items() if (names[job], one.token) == (name, token)), None)


Say = Callable[[str, str], None]
"""`say("squeue", "echo ...")` makes a command of that name; the script finds all calls so far in $LOG."""

NEWEST_NAME = """sed -n 's/.*--job-name=\\([^ ]*\\) .*/\\1/p' "$LOG" | tail -n 1"""
"""Shell text that prints what the newest job was called."""


def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for a controller that may come back."""
    monkeypatch.setattr("hpcddp.backends.slurm_send.RESEND_PAUSES_S", (0.0, 0.0))
    monkeypatch.setattr("hpcddp.backends.slurm_recovery.RETRY_PAUSES_S", (0.0, 0.0))
    monkeypatch.setattr("hpcddp.backends.slurm_recovery.SEARCH_AGAIN_S", 0.0)


def stand_ins(folder: Path, monkeypatch: pytest.MonkeyPatch, commands: Sequence[str], script: str) -> Say:
    """These commands, in place of any that are installed; each does `script` until it is said to do another."""
    programs = folder / "bin"
    programs.mkdir()

    def say(command: str, script: str) -> None:
        (programs / command).write_text(f'#!/bin/bash\necho "$(basename $0) $*" >> "$LOG"\n{script}\n')
        (programs / command).chmod(0o755)

    monkeypatch.setattr("hpcddp.backends.slurm_commands._Absence.since_s", None)
    monkeypatch.setattr("hpcddp.backends.slurm_commands._Absence.is_said", False)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(folder / "log"))
    for command in commands:
        say(command, script)
    return say


def calls(folder: Path, command: str) -> list[str]:
    """How it was called, from its name on."""
    return [line for line in (folder / "log").read_text().splitlines() if line.split()[0] == command]


PATIENCE_S = 180.0
"""Only something broken takes this long."""


def wait_for(condition: Callable[[], Any]) -> Any:
    """The first true answer."""
    deadline = time.monotonic() + PATIENCE_S
    while not (result := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return result
