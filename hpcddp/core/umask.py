"""Who may write the files that this process makes. Standard library only, Python 3.10."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator

NO_WRITE = 0o022
"""Bits of umask(2): no write permission for group and others."""


@contextlib.contextmanager
def not_for_others(trusted: Collection[int]) -> Iterator[int]:
    """Files made inside are writable by this user only, whatever the umask: 002 lets a whole project's group write.

    Where groups are trusted the umask stays. Yields the umask that held before.
    """
    before = os.umask(NO_WRITE)
    os.umask(before if trusted else before | NO_WRITE)
    try:
        yield before
    finally:
        os.umask(before)
