"""Processes, told apart although numbers are used again. Standard library only, Python 3.10."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class HostProcess:
    """A process on a machine; `start` tells it from a later one of the same id."""

    host: str
    pid: int
    start: int | None

    @classmethod
    def here(cls, pid: int) -> HostProcess:
        """A process of this machine."""
        return cls(host=socket.gethostname(), pid=pid, start=process_start(pid))

    def is_alive(self) -> bool | None:
        """None where that is not known: on another machine, or another user's where /proc is hidden."""
        if self.host != socket.gethostname():
            return None
        start = process_start(self.pid)
        if start is not None:
            return start == self.start
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return None
        return False  # one's own that has ended, but that its parent has not waited for


def process_start(pid: int) -> int | None:
    """When a process of this machine started, in clock ticks after boot (proc(5), field 22 of stat); None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    state, *rest = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(rest[18])
