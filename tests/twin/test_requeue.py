"""A job that Slurm tells to stop is requeued and goes on where it was, on a real Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twin.daemons import wait_until
from tests.twin.twin import Twin
from tests.twin.userland import PATIENCE_S, User, at_the_end, counted_steps, in_one_piece, read, submitted, wait_for_steps

HELD = """
        held = restart is not None and restart < {times}
        time.sleep(0.55 if held and (restart == 0 or calls[0] > 2) else 0)
        while held and calls[0] == 5 and signal.SIGUSR2 not in signal.sigpending():
            time.sleep(0.01)
"""
"""Ranks look after each step that takes more than half a second; in the fifth call each of the first attempts' waits until the
signal has reached it: no test of who is faster. The first two calls of an attempt that goes on are rehearsals.
"""

STEPS = 195


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.soak)])
def test_a_job_that_is_told_to_stop_goes_on(rcc_twin: Twin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """SIGUSR2 reaches ranks, loaders and sampler and ends none; the script requeues; the parameters are bit for bit the same."""
    user = User(rcc_twin, tmp_path)
    job, run_dir = submitted(user, STEPS, HELD.format(times=times).strip())
    for restart in range(times):
        wait_for_steps(user, run_dir / f"{job}.{restart}")
        user.twin.run(["scancel", "--signal=USR2", job])
    user.twin.wait_jobs(PATIENCE_S)
    wait_until(lambda: not user.failures(), [], "the last end of the job in sacct", PATIENCE_S, lambda: str(user.failures()))
    attempts = [run_dir / f"{job}.{restart}" for restart in range(times + 1)]
    ends = [read(attempt / "end.json") for attempt in attempts]
    assert [end["state"] for end in ends] == ["interrupted"] * times + ["done"]
    assert all(end["reason"].endswith("the job is requeued and goes on from there") for end in ends[:-1])
    assert [part["attempt"] for part in ends[-1]["history"]] == [attempt.name for attempt in attempts]
    assert sum(part["steps"] for part in ends[-1]["history"]) == 5 + STEPS
    assert counted_steps(run_dir, attempts[-1]) == list(range(5 + STEPS))
    assert [entry["phase"] for entry in user.json("status", "study")["studies"][0]["runs"]] == ["done"]
    monkeypatch.syspath_prepend(str(tmp_path))
    assert at_the_end(attempts[-1]) == in_one_piece(user, run_dir)
