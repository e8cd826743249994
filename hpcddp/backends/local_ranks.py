"""The ranks of one local run: all of them end when one fails, when time is up, or when the runner goes.

submitit's controller starts the processes and closes their logs; it would wait for all of them, whatever became of one
(submitit 1.5.4). This one leads a session of its own, so that its process group is the run and nothing else.
Python 3.10: runs from the snapshot.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from submitit.local.local import Controller

from hpcddp.core.bootstrap import PARENT_VARIABLE, die_with_parent
from hpcddp.core.launcher import ended_words, first_failure
from hpcddp.core.records import write_json
from hpcddp.core.schema import encode

EXIT_FILE = "exit.json"

WALLTIME_VARIABLE = "HPCDDP_WALLTIME_S"

GRACE_S = 2.0
"""From SIGTERM to SIGKILL."""

POLL_EVERY_S = 0.05


@dataclass(frozen=True, kw_only=True)
class RanksExit:
    """exit.json: what ended the run, None if all ranks came to their end."""

    why: str | None


class Ranks(Controller):
    """`why`: what ended the run, None if all ranks came to their end."""

    def __init__(self, folder: Path, walltime_s: float) -> None:
        super().__init__(folder)
        self.why: str | None = None
        self._walltime_s = walltime_s
        self._terminated = False
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, *_: object) -> None:
        self._terminated = True

    def watch(self) -> None:
        """Returns when no rank runs any more."""
        deadline_s = time.monotonic() + self._walltime_s
        while any(code is None for code in self._codes()):
            self.why = self._reason(deadline_s)
            if self.why:
                self._stop()
                break
            time.sleep(POLL_EVERY_S)
        self.why = self.why or self._failure()

    def _codes(self) -> list[int | None]:
        return [task.poll() for task in self.tasks]

    def _reason(self, deadline_s: float) -> str | None:
        """Why the run cannot go on, None while it can."""
        if self._terminated:
            return "ended from outside"
        if time.monotonic() >= deadline_s:
            return f"timed out: still running after {self._walltime_s / 60:g} min"
        return self._failure()

    def _failure(self) -> str | None:
        """The first rank that failed, in words."""
        failed = ((rank, code) for rank, code in enumerate(self._codes()) if code)
        return next((first_failure(self.folder) or ended_words(rank, code) for rank, code in failed), None)

    def _stop(self) -> None:
        """Ends all ranks: by SIGTERM, then by SIGKILL."""
        self._forward_signal(signal.SIGTERM)
        deadline_s = time.monotonic() + GRACE_S
        while time.monotonic() < deadline_s and any(code is None for code in self._codes()):
            time.sleep(POLL_EVERY_S)
        self._forward_signal(signal.SIGKILL)
        for task in self.tasks:
            task.wait()


def main() -> None:
    """Runs the ranks of the job in the folder given, writes exit.json, and ends the whole process group, itself included."""
    folder = Path(sys.argv[1])
    ranks = Ranks(folder, float(os.environ[WALLTIME_VARIABLE]))
    die_with_parent(os.environ[PARENT_VARIABLE], signal.SIGTERM)
    os.environ[PARENT_VARIABLE] = str(os.getpid())
    try:
        ranks.start_tasks()
        ranks.watch()
        ranks.kill_tasks()  # closes the logs
    except OSError as error:
        ranks.why = f"its ranks could not be started: {error}"
    write_json(folder / EXIT_FILE, encode(RanksExit(why=ranks.why)))
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
