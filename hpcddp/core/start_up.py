"""How long an attempt took from srun to its first step: modules are loaded by then, and what is left is mostly imports.

The worker notes when its job step began on its node (launch.json, `launched_unix_ns`), and when all ranks had met; the first step
has its row.
"""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from hpcddp.core.launch_record import LaunchRecord
from hpcddp.core.records import STEP_COLUMNS_1, steps_file

STEP_DAEMON = "slurmstepd"
"""The process of Slurm that starts the tasks of a step on a node, when srun tells it."""

HEAD_BYTES = 4096
"""The header and the first row have some 300."""


@dataclass(frozen=True, kw_only=True)
class StartUp:
    """Seconds since the first of an attempt's ranks was launched, without those in which data were copied to the nodes."""

    until_met_s: float
    """All ranks had been imported, and had found each other."""
    until_first_step_s: float


def launched_unix_ns(proc: Path = Path("/proc")) -> int | None:
    """When the job step began on this node; without Slurm's daemon among its parents, when this process did. None where the
    system does not say.
    """
    pid, started = os.getpid(), None
    try:
        while pid > 1:
            name, parent, ticks = _process(proc / str(pid) / "stat")
            started = ticks if started is None or name == STEP_DAEMON else started
            if name == STEP_DAEMON:
                break
            pid = parent
    except (OSError, ValueError, IndexError):  # another user's processes may be hidden
        pass
    if started is None:
        return None
    since_boot_ns = started * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return time.time_ns() - (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - since_boot_ns)


def _process(stat: Path) -> tuple[str, int, int]:
    """Its name, its parent, and when it started, in ticks since the machine did (proc(5)); the name may hold anything."""
    before, _, after = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")
    fields = after.split()
    return before.partition("(")[2], int(fields[1]), int(fields[19])


def start_up(attempt: Path, launch: LaunchRecord) -> StartUp | None:
    """Of an attempt that has made a step; None where that, or when it was launched, is not recorded."""
    first_ns = _first_step_unix_ns(steps_file(attempt, 0))
    if launch.launched_unix_ns is None or launch.started_unix_ns is None or first_ns is None:
        return None
    launched_ns = launch.launched_unix_ns + (int(1e9 * launch.data.staging.wait_s) if launch.data.staging else 0)
    met_ns, step_ns = launch.started_unix_ns - launched_ns, first_ns - launched_ns
    return StartUp(until_met_s=met_ns / 1e9, until_first_step_s=step_ns / 1e9) if 0 <= met_ns <= step_ns else None


def _first_step_unix_ns(file: Path) -> int | None:
    try:
        rows = _head(file).decode("ascii", errors="replace").split("\n")
        return int(rows[1].split(",")[STEP_COLUMNS_1.index("start_ns")])
    except (OSError, ValueError, IndexError):
        return None


def _head(file: Path) -> bytes:
    """Nothing of what is no regular file: reading a FIFO would wait."""
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    with open(handle, "rb") as opened:
        return opened.read(HEAD_BYTES) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
