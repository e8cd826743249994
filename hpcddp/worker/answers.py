"""Ranks of a short job that answer rank 0 through files of the job's folder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

ANSWER_WITHIN_S = 180.0
"""A network file system may show a new file a minute late (NFS's acdirmax is 60 s)."""


def answered(files: Sequence[Path]) -> list[Path]:
    """Those that are there as soon as all are, or when the time is over."""
    give_up_at = time.monotonic() + ANSWER_WITHIN_S
    while time.monotonic() < give_up_at and not all(file.exists() for file in files):
        time.sleep(0.2)
    return [file for file in files if file.exists()]
