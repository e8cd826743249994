"""The lock of a folder of data: one process at a time writes there, and the next waits, then finds what is left to do."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from hpcddp.core.lock import HeldError, HeldLock, exclusive_lock

FOLDER = ".hpcddp-lock"
"""In the folder that it protects; hidden, so that no data set takes it for a part of itself."""

POLL_EVERY_S = 1.0
"""A few small requests to the file server each time."""


@contextlib.contextmanager
def root_lock(root: Path, remark: Callable[[str], None]) -> Iterator[HeldLock]:
    """Holds the lock of the folder `root` inside the block. While another process does, `remark` is given a sentence, once for
    each holder, and this one waits: a job that others wait for must not fail for being second. OSError where nothing can be
    written in `root`, which must exist.
    """
    (root / FOLDER).mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        yield _wait(stack, root, remark)


def _wait(stack: contextlib.ExitStack, root: Path, remark: Callable[[str], None]) -> HeldLock:
    remarked = ""
    while True:
        try:
            return stack.enter_context(exclusive_lock(root / FOLDER))
        except HeldError as error:
            holder = str(error).partition(",")[0]
            if holder != remarked:
                remark(f"{root}: {holder} writes there; waiting until it is done")
                remarked = holder
        time.sleep(POLL_EVERY_S)
