"""A job whose node is lost is requeued by Slurm and goes on where it was; what the lost node still writes reaches nobody."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

import pytest

from hpcddp.cluster.profile_file import load_profile
from tests.twin.config import completions_file
from tests.twin.daemons import wait_until
from tests.twin.shape import Site
from tests.twin.twin import Twin, Twins
from tests.twin.userland import PATIENCE_S, User, at_the_end, counted_steps, in_one_piece, read, submitted

pytestmark = pytest.mark.soak

SLURMD_TIMEOUT_S = 10

MESSAGE_TIMEOUT_S = 3
"""Slurm notices a loss SLURMD_TIMEOUT_S and one or two fruitless questions later; each takes it up to 2 s more than this."""

HELD = """
        written = any(pathlib.Path("../..").glob(f"*/r1/*.{{restart}}/checkpoints/[0-9]*"))
        time.sleep((60 if written else 1) if restart in range({losses}) else 0)
"""
"""Ranks look after each step that takes a second; once there is a checkpoint, they wait longer than Slurm."""

STEPS = 195


How = Literal["slurmd dies", "stands still"]


@dataclass(frozen=True)
class Loss:
    """A node, its processes other than Slurm's, and when it was lost, in seconds of this machine's clock."""

    node: str
    ranks: frozenset[int]
    unix_s: float


@pytest.fixture(scope="module")
def twin(twins: Twins, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    """Two jobs, each on two nodes, lose three of six: what is lost stays down."""
    twins.close()
    site = Site(slurmd_timeout_s=SLURMD_TIMEOUT_S, message_timeout_s=MESSAGE_TIMEOUT_S)
    with Twin(load_profile("rcc"), tmp_path_factory.mktemp("lossy"), nodes=6, site=site) as up:
        yield up


def lose_a_node(twin: Twin, attempt: Path, how: How) -> Loss:
    """The second one of the attempt, once that has a checkpoint: all of it stands still, or its slurmd alone is killed."""
    wait_until(lambda: any(attempt.glob("checkpoints/[0-9]*")), [], f"a checkpoint of {attempt.name}", PATIENCE_S)
    node = str(read(attempt / "launch.json")["hosts"][1])
    processes = twin.node_processes(node)
    loss = Loss(node, frozenset(pid for pid in processes if not is_slurm(pid)), time.time())
    if how == "stands still":
        send(signal.SIGSTOP, processes)
    else:
        twin.kill_slurmd(node)
    return loss


def is_slurm(pid: int) -> bool:
    """slurmd or slurmstepd; not what has ended by now."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("slurm")
    except OSError:
        return False


def send(number: signal.Signals, pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def wait_for_the_end_of(loss: Loss, twin: Twin) -> None:
    wait_until(lambda: loss.ranks.isdisjoint(twin.processes()), [], "the end of ranks that nobody waits for", PATIENCE_S)


def requeued_unix_s(twin: Twin, job: str) -> list[float]:
    """When Slurm requeued the job, each time, as it says itself; it leaves out the fraction of a second."""
    log = completions_file(twin.folder).read_text()
    _, *again = re.findall(rf"^JobId={job} .* SubmitTime=(\S+)", log, re.MULTILINE)
    return [datetime.fromisoformat(submitted).timestamp() for submitted in again]


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.mark.parametrize("ways", [["stands still"], ["slurmd dies", "stands still"]])
def test_a_run_that_loses_nodes(twin: Twin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ways: list[How]) -> None:
    """Slurm requeues in SlurmdTimeout + 15 s, and parameters are the same.

    Of the node that stood still ranks wake when the run is done: they write into their own attempt's folder, or into
    their logs that they end with the others, and end.
    """
    user = User(twin, tmp_path, {"HPCDDP_HANG_S": "600"})  # Slurm shall notice, not the ranks
    job, run_dir = submitted(user, STEPS, HELD.format(losses=len(ways)).strip(), ", checkpoint_every_min: 0.01")
    *lost, last = attempts = [run_dir / f"{job}.{restart}" for restart in range(len(ways) + 1)]
    losses = [lose_a_node(twin, attempt, how) for attempt, how in zip(lost, ways, strict=True)]
    wait_until((last / "end.json").exists, [], "the end of the run", PATIENCE_S)
    twin.wait_jobs(PATIENCE_S)
    for loss, requeued in zip(losses, requeued_unix_s(twin, job), strict=True):
        assert requeued + 1 - loss.unix_s < SLURMD_TIMEOUT_S + 15
        assert loss.node not in read(last / "launch.json")["hosts"]
    assert [part["attempt"] for part in read(last / "end.json")["history"]] == [attempt.name for attempt in attempts]
    assert counted_steps(run_dir, last) == list(range(5 + STEPS))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert at_the_end(last) == in_one_piece(user, run_dir)
    *deaf, still = losses
    for loss in deaf:
        wait_for_the_end_of(loss, twin)
    logs = run_dir.parents[1] / ".jobs" / job
    before, early = contents(last), contents(lost[-1]) | contents(logs)
    send(signal.SIGCONT, still.ranks)
    wait_for_the_end_of(still, twin)
    assert contents(lost[-1]) | contents(logs) != early
    assert contents(last) == before
    twin.kill_slurmd(still.node)  # which would not end when it is told to
