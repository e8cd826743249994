"""Another user of the machine, who does what a planted file needs: real users, since permissions are what is tested."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.cannot_run import cannot_run

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
