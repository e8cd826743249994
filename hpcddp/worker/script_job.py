"""The run whose script this process executes, as the probe in that script finds it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.own_script import script_text
from hpcddp.worker.master import Store
from hpcddp.worker.ranks import Rank
from hpcddp.worker.watchdog.thread import Watchdog

LINES = (
    "`from hpcddp.probe import measure`, around the training loop `with measure(model, optimizer, samples_per_step=32) as steps:`"
    " and `for batch in steps(loader):` instead of `for batch in loader:`"
)
"""What a script needs."""


@dataclass(frozen=True)
class Measured:
    """What the probe measured."""

    steps: int
    gates_passed: bool | None
    """None but on rank 0."""


class ScriptMeasurement(Protocol):
    """What the job needs of the probe's."""

    def finish(self) -> None: ...


class ScriptJob:
    """Of one rank: the run that the probe in its script measures, once."""

    def __init__(self, spec: JobSpec, rank: Rank, store: Store, watchdog: Watchdog, attempt: Path) -> None:
        self.spec, self.rank, self.store, self.watchdog, self.attempt = spec, rank, store, watchdog, attempt
        self.measured: Measured | None = None
        self.measurement: ScriptMeasurement | None = None
        """The probe's, of the script's own loop; the script's end finishes it."""
        self._measurements = 0

    def begin(self) -> None:
        """A measurement begins; HpcddpError of a second one, and the run then does not count."""
        self._measurements += 1
        if self._measurements > 1:
            self.check()

    def check(self) -> None:
        """HpcddpError unless one loop was measured."""
        name = script_text(self.spec.point.workload)
        if self._measurements > 1:
            if self.rank.rank == 0:
                (self.attempt / "end.json").unlink(missing_ok=True)
            raise HpcddpError(
                f"{name} calls measure() {self._measurements} times, but a run is one measurement. Measure one loop, or set it "
                f"by an argument, such as workload.args.loop: [first, second] in the sweep's points."
            )
        if not self._measurements:
            raise HpcddpError(f"{name} ended without a measurement. It needs {LINES}.")
        if self.measurement:
            self.measurement.finish()
        if self.measured is None:
            raise HpcddpError(
                f"{name} calls measure(), but takes no batch from it. Write its loop as `for batch in steps(loader):`."
            )


_current: ScriptJob | None = None


def current_job() -> ScriptJob | None:
    """Of this process; None in a script that was started by itself."""
    return _current


def become_job(job: ScriptJob) -> None:
    """From here on this process is a rank of that run."""
    global _current  # noqa: PLW0603 - a process is one rank of one run
    _current = job
