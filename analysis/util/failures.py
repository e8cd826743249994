"""Contains unexpected errors: an error costs the run or the file that it concerns, and is reported with what to do."""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import hpcddp
from hpcddp import __version__
from hpcddp.core.errors import HpcddpError
from hpcddp.core.text import one_line

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""A disk, or what a user may have of it, is full."""

MESSAGE_CHARACTERS = 160
"""Of an error's own message: some libraries put all arguments into it."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Failure:
    """What an error cost, and why, in words."""

    of: str
    reason: str


class Failures(list[Failure]):
    """The failures of one analysis, in their order."""

    def contain(self, of: str, work: Callable[[], Result], instead: Result) -> Result:
        """Returns what the work returns; if it raises, adds a Failure and returns `instead`."""
        found = contain(of, work)
        if not isinstance(found, Failure):
            return found
        self.append(found)
        return instead

    def by_reason(self) -> dict[str, list[str]]:
        """Reason -> everything that failed for it."""
        found: dict[str, list[str]] = {}
        for each in self:
            found.setdefault(each.reason, []).append(each.of)
        return found


def contain(of: str, work: Callable[[], Result]) -> Result | Failure:
    """Returns what the work returns, or why it failed. MemoryError and KeyboardInterrupt are not caught."""
    try:
        return work()
    except MemoryError:
        raise
    except HpcddpError as error:
        return Failure(of, str(error))
    except OSError as error:
        then = "; make room, or name another folder with -o" if error.errno in NO_ROOM else ""
        return Failure(of, f"{error.strerror or error}{then}")
    except Exception as error:
        return Failure(of, reported(error))


def reported(error: Exception) -> str:
    """A sentence: the error, the line of hpcddp it came from, and the request to report it."""
    message = one_line(f"{type(error).__name__}: {error}")[:MESSAGE_CHARACTERS]
    return f"{message} ({_place(error)}): a fault in hpcddp {__version__}; please report this line where you got hpcddp from"


def _place(error: Exception) -> str:
    """`hpcddp/analysis/records/steps.py:88`: the innermost line of hpcddp in the traceback."""
    above = Path(hpcddp.__file__).parent.parent
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(above / "hpcddp")]
    last = ours[-1] if ours else frames[-1]
    return f"{Path(last.filename).relative_to(above) if ours else Path(last.filename).name}:{last.lineno}"
