"""A small disk that is really full: a tmpfs."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.cannot_run import cannot_run


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
