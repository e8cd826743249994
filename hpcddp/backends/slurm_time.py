"""Slurm's durations, `1-12:00:00` or `20:00`, as numbers."""

from __future__ import annotations

import re


def limit_min(text: str | None) -> int | None:
    """Slurm's `1-12:00:00`, `20:00` or `00:20:00` in whole minutes; None where there is no limit, or none is known."""
    seconds = time_s(text)
    return None if seconds is None else int(seconds) // 60


def time_s(text: str | None) -> float | None:
    """The same in seconds."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text or "")
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return 60.0 * ((days * 24 + hours) * 60 + minutes) + seconds
