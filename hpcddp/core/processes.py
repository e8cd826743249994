"""Processes of this machine, told apart although numbers are used again. Standard library only, Python 3.10."""

from __future__ import annotations

from pathlib import Path


def process_start(pid: int) -> int | None:
    """When a process started, in clock ticks after boot (proc(5), field 22 of stat); None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    state, *rest = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(rest[18])
