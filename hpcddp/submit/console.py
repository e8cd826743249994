"""How the user is talked to while something is submitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Console:
    """How the user is talked to."""

    echo: Callable[[str], None]
    """A result, on stdout."""
    remark: Callable[[str], None]
    """What is worth knowing besides, on stderr."""
    progress: Callable[[str], None]
    """What changes while the user waits, on stderr."""
    confirm: Callable[[str], object]
    """A question; raises where the answer is no."""
