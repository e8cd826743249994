"""What `hpcddp lint` finds in a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hpcddp.script.job_launch import Job


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that a rule found."""

    line: int
    rule: str
    text: str
    """What is wrong, why, and what to write."""


Rule = Callable[[Job], Iterator[Finding]]
