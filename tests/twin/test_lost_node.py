"""A job whose node is lost is requeued by Slurm and goes on where it was; what the lost node still writes reaches nobody."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcddp.cluster import load_profile
from tests.twin.manager import Twins
from tests.twin.processes import wait_until
from tests.twin.resumed import PATIENCE_S, at_the_end, counted_steps, in_one_piece, read, submitted
from tests.twin.shape import Site
from tests.twin.twin import Twin
from tests.twin.userland import User

pytestmark = pytest.mark.soak

SLURMD_TIMEOUT_S = 20

SLOW = "time.sleep(1.0 if restart == 0 and calls[0] > 20 else 0.0)"
"""The first attempt would take three minutes: Slurm notices long before."""

STEPS = 195


@pytest.fixture(scope="module")
def twin(twins: Twins, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    """Each test of a job on two nodes loses one of four."""
    twins.close()
    site = Site(slurmd_timeout_s=SLURMD_TIMEOUT_S, message_timeout_s=5)
    with Twin(load_profile("rcc"), tmp_path_factory.mktemp("lossy"), nodes=4, site=site) as up:
        yield up


def lost_in(user: User, job: str, loses: str) -> str:
    """The second host of the job in its first attempt, once a checkpoint is there; the node is lost on return."""
    attempt = next(user.home.glob(f"study/*/r1/{job}.0"), None)
    assert attempt is not None
    node = str(read(attempt / "launch.json")["hosts"][1])
    if loses == "slurmd":
        user.twin.kill_slurmd(node)
    else:
        freeze(user.twin.node_processes(node))
    return node


def freeze(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)


def thaw(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def wait_for_requeue(user: User, job: str) -> None:
    def restarts() -> str:
        return user.twin.run(["scontrol", "show", "job", job]).stdout

    wait_until(lambda: "Restarts=1" in restarts(), [], "the requeue", PATIENCE_S, restarts)


def ranks_of(twin: Twin, node: str) -> list[int]:
    """Processes of a node that are not Slurm's own."""
    return [pid for pid in twin.node_processes(node) if not Path(f"/proc/{pid}/comm").read_text().startswith("slurm")]


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.mark.parametrize("loses", ["slurmd", "everything"])
def test_a_lost_node(twin: Twin, tmp_path: Path, loses: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slurmd is killed, or all of it stands still: Slurm requeues in SlurmdTimeout + 15 s, and parameters are the same.

    Of a node that stands still ranks wake when the run is done: they write into their own attempt's folder, and end.
    """
    user = User(twin, tmp_path, {"HPCDDP_HANG_S": "600"})  # Slurm shall notice, not the ranks
    job, run_dir = submitted(user, STEPS, SLOW, ", checkpoint_every_min: 0.01")
    first, last = run_dir / f"{job}.0", run_dir / f"{job}.1"
    wait_until(lambda: any(first.glob("checkpoints/[0-9]*")), [], "a checkpoint", PATIENCE_S)
    began_s = time.monotonic()
    node = lost_in(user, job, loses)
    wait_for_requeue(user, job)
    assert time.monotonic() - began_s < SLURMD_TIMEOUT_S + 15
    twin.wait_jobs(PATIENCE_S)
    assert [part["attempt"] for part in read(last / "end.json")["history"]] == [first.name, last.name]
    assert node not in read(last / "launch.json")["hosts"]
    assert counted_steps(run_dir, last) == list(range(5 + STEPS))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert at_the_end(last) == in_one_piece(user, run_dir)
    if loses == "everything":
        before, early = contents(last), contents(first)
        thaw(ranks_of(twin, node))
        wait_until(lambda: not ranks_of(twin, node), [], "the end of ranks that nobody waits for", PATIENCE_S)
        assert contents(first) != early
        assert contents(last) == before
