"""Whether what is to be written has room."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.text import size

FULL = (errno.ENOSPC, errno.EDQUOT)


def check_space(folder: Path, needed_bytes: int, what: str, advice: str) -> None:
    """HpcddpError says how much is missing in `folder`, where that can be known; a quota may leave less."""
    free_bytes = shutil.disk_usage(folder).free
    if needed_bytes > free_bytes:
        missing_bytes = needed_bytes - free_bytes
        raise HpcddpError(
            f"{what} needs {size(needed_bytes)} more in {folder}, where {size(free_bytes)} are free: "
            f"{size(missing_bytes)} are missing; {advice}"
        )


def write_error(error: OSError, folder: Path, what: str, still_bytes: Callable[[], int]) -> HpcddpError:
    """The sentence for an error in writing `what`; of a full disk with how much is still to be written."""
    if isinstance(error, (FileExistsError, NotADirectoryError, PermissionError)):
        return UsageError(f"cannot write {what} into {folder}: {error.strerror}; choose another folder")
    room = f"; {size(still_bytes())} are still to be written there" if error.errno in FULL else ""
    return HpcddpError(f"cannot write {what} into {folder}: {error}{room}; what is finished stays, run again to go on")
