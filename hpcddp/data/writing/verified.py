"""What reading a whole data set found."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.text import count, escape_controls, one_line

Damage = tuple[str, str]
"""Name of a file or a picture, and what is wrong with it."""

Progress = Callable[[int, int], None]
"""Called with how much has been read, and how much there is."""

NAMED = 3
"""In the sentence; each stands in a line of its own before it."""


@dataclass(frozen=True, kw_only=True)
class Verified:
    """Everything that was read."""

    root: Path
    what: str
    """`242 files with 72,000,000 samples`"""
    damaged: tuple[Damage, ...]
    remedy: str
    """What to do about what is damaged."""
    remark: str = ""
    """What could not be checked."""

    def lines(self) -> Iterator[str]:
        """One for each that is damaged."""
        return (f"{_name(name)}: {reason}" for name, reason in self.damaged)

    def sentence(self) -> str:
        """What was read and found in order; HpcddpError where something is damaged."""
        if self.damaged:
            first = ", ".join(_name(name) for name, _ in self.damaged[:NAMED])
            more = f" and {len(self.damaged) - NAMED:,} more" if len(self.damaged) > NAMED else ""
            raise HpcddpError(f"{self.root}: {len(self.damaged):,} damaged among {self.what}: {first}{more}; {self.remedy}")
        return f"{self.root}: {self.what} read, none is damaged{self.remark and f'; {self.remark}'}"


@contextlib.contextmanager
def readable() -> Iterator[None]:
    """UsageError names what may not be read."""
    try:
        yield
    except PermissionError as error:
        raise UsageError(f"cannot read {error.filename}: {error.strerror}") from error


def _name(name: str) -> str:
    """As one line, whatever somebody has put into it."""
    return escape_controls(one_line(name))


def counted(done: int, total: int, progress: Progress) -> Callable[[int], None]:
    """What to call with each further amount that was read."""

    def advance(amount: int) -> None:
        nonlocal done
        done += amount
        progress(done, total)

    advance(0)
    return advance


def files(number: int) -> str:
    """`1 file`, `242 files`."""
    return count(number, "file")
