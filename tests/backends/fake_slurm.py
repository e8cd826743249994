"""Stand-ins for Slurm's commands, which say what a test tells them and note how they were called; and waiting for what comes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

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
