"""What tests need of this machine, or are skipped: another user, who does what a planted file needs, and a disk that is full."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest


def cannot_run(reason: str) -> NoReturn:
    """`reason`: what is missing here."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


NOBODY = 65534
"""Debian's and Red Hat's `nobody`, and a group that no user of a test is in."""


def as_nobody(act: Callable[[], object], folder: Path) -> None:
    """Runs `act` in a process of user and group `nobody` that stands in `folder`, whoever may enter what is above; what it raises
    fails the test.
    """
    need_root()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.chdir(folder)
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            act()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def need_root() -> None:
    """Skips where this process may not become another user."""
    if os.geteuid() != 0:
        cannot_run("only root can be another user, too")


@contextlib.contextmanager
def small_disk(above: Path) -> Iterator[Path]:
    """A disk of 1 MiB; the test cannot run where that cannot be mounted."""
    disk = above / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        cannot_run("a tmpfs can be mounted by root only")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def fill(disk: Path) -> None:
    """Until not a byte fits."""
    with (disk / "ballast").open("wb", buffering=0) as out, contextlib.suppress(OSError):
        while out.write(bytes(4096)):
            pass
