"""Errors a user can mend: each names the thing, the value and the next step, and carries its exit code."""

from __future__ import annotations

import copyreg
from typing import Any

FAILED = 1
USAGE = 2
INCOMPLETE = 3
DIFFERS = 4
REFUSED = 5


class HpcddpError(Exception):
    """Something the user can mend; printed without a traceback, by the CLI only."""

    exit_code = FAILED

    def __reduce__(self) -> tuple[Any, ...]:
        """Whatever arguments a class takes: an error comes back from another process as it is."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    def reworded(self, text: str) -> HpcddpError:
        """With that text: an error of the nearest class that takes a text, with the same exit code."""
        new: HpcddpError = next(each for each in type(self).__mro__ if "__init__" not in vars(each))(text)
        return new


class UsageError(HpcddpError):
    """A value on the command line, in a sweep, a profile or the user's settings is wrong."""

    exit_code = USAGE


class RefusedError(HpcddpError):
    """Slurm refused the job; the message is Slurm's own, with the point it refused."""

    exit_code = REFUSED


class FullError(RefusedError):
    """Slurm takes no more jobs of this user for now."""
