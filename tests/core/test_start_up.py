"""How long an attempt took from srun to its first step."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcddp.core.launch_record import LaunchRecord
from hpcddp.core.records import STEP_COLUMNS, RowWriter, steps_file
from hpcddp.core.start_up import StartUp, launched_unix_ns, start_up

S = 1_000_000_000
NOW_NS = 1_700_000_000 * S


def launch(launched_ns: int | None = NOW_NS, met_ns: int | None = NOW_NS + 20 * S) -> LaunchRecord:
    return LaunchRecord(schema=1, point="p", ranks=1, gpus=(), env_id="e", started_unix_ns=met_ns, launched_unix_ns=launched_ns)


def first_step(attempt: Path, start_ns: int) -> None:
    """One row, as the worker writes it."""
    steps_file(attempt, 0).parent.mkdir(parents=True)
    with RowWriter(steps_file(attempt, 0), STEP_COLUMNS) as writer:
        writer.row([0, 1, start_ns, *([5] * (len(STEP_COLUMNS) - 3))])


def test_until_all_met_and_until_the_first_step(tmp_path: Path) -> None:
    """From the launch on."""
    first_step(tmp_path, NOW_NS + 34 * S)
    assert start_up(tmp_path, launch()) == StartUp(until_met_s=20.0, until_first_step_s=34.0)


@pytest.mark.parametrize(
    ("launched_ns", "met_ns", "step_ns"),
    [(None, NOW_NS, NOW_NS), (NOW_NS, None, NOW_NS), (NOW_NS, NOW_NS, None), (NOW_NS, NOW_NS - 1, NOW_NS), (NOW_NS, NOW_NS, 0)],
)
def test_what_is_not_recorded_or_cannot_be_is_unknown(
    tmp_path: Path, launched_ns: int | None, met_ns: int | None, step_ns: int | None
) -> None:
    """Records of earlier versions, an attempt without a step, a clock that was set."""
    if step_ns is not None:
        first_step(tmp_path, step_ns)
    assert start_up(tmp_path, launch(launched_ns, met_ns)) is None


def test_a_process_knows_when_it_was_started() -> None:
    """To a hundredth of a second, however long its imports took."""
    code = "import time; time.sleep(0.4); from hpcddp.core.start_up import launched_unix_ns; print(launched_unix_ns())"
    before_ns = time.time_ns()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert -0.05 * S < int(done.stdout) - before_ns < 0.35 * S


def test_rows_that_are_a_fifo_are_none(tmp_path: Path) -> None:
    """Whoever may write in a study can make one, and reading it would wait for ever."""
    steps_file(tmp_path, 0).parent.mkdir()
    os.mkfifo(steps_file(tmp_path, 0))
    assert start_up(tmp_path, launch()) is None


def stat(proc: Path, pid: int, name: str, parent: int, ticks: int) -> None:
    """/proc/PID/stat of a process that started so many ticks after the machine."""
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} {'0 ' * 17}{ticks} 0 0\n")


def test_of_a_step_slurms_daemon_counts(tmp_path: Path) -> None:
    """Between it and the rank may be a shell, a container and torchrun, each with a name that holds anything."""
    own = os.getpid()
    stat(tmp_path, own, "python3 (a) b", 71, 900)
    stat(tmp_path, 71, "torchrun", 70, 500)
    without = launched_unix_ns(tmp_path)
    stat(tmp_path, 70, "slurmstepd", 1, 100)
    with_daemon = launched_unix_ns(tmp_path)
    assert without is not None
    assert with_daemon is not None
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    assert (without - with_daemon) / S == pytest.approx(800 / ticks_per_s, abs=0.05)


def test_where_the_system_says_nothing_nothing_is_known(tmp_path: Path) -> None:
    """Or only of this process, where others are hidden."""
    assert launched_unix_ns(tmp_path) is None
