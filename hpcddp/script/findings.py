"""What `hpcddp lint` finds in a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from hpcddp.script.job_launch import Job


class Finding(NamedTuple):
    """What a rule found in a line: what is wrong, why, and what to write."""

    line: int
    rule: str
    text: str


Rule = Callable[[Job], Iterator[Finding]]
