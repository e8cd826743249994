"""Jobs that Slurm tells to stop, and jobs that lose a node, are requeued and go on where they were, on a real Slurm."""

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

from hpcddp.analysis.study.load import load_study
from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.run_root import single_study
from tests.twin.config import completions_file
from tests.twin.daemons import wait_until
from tests.twin.shape import Site
from tests.twin.twin import Twin, Twins
from tests.twin.userland import PATIENCE_S, User, at_the_end, counted_steps, in_one_piece, read, submitted, wait_for_steps

STOPPED = """
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
    job, run_dir = submitted(user, STEPS, STOPPED.format(times=times).strip())
    for restart in range(times):
        wait_for_steps(user, run_dir / f"{job}.{restart}")
        user.twin.run(["scancel", "--signal=USR2", job])
    user.wait_until_completed()
    attempts = [run_dir / f"{job}.{restart}" for restart in range(times + 1)]
    ends = [read(attempt / "end.json") for attempt in attempts]
    assert [end["state"] for end in ends] == ["interrupted"] * times + ["done"]
    assert all(end["reason"].endswith("the job is requeued and resumes from it") for end in ends[:-1])
    assert [part["attempt"] for part in ends[-1]["history"]] == [attempt.name for attempt in attempts]
    assert sum(part["steps"] for part in ends[-1]["history"]) == 5 + STEPS
    assert counted_steps(run_dir, attempts[-1]) == list(range(5 + STEPS))
    assert [entry["phase"] for entry in user.json("status", "study")["studies"][0]["runs"]] == ["done"]
    monkeypatch.syspath_prepend(str(tmp_path))
    assert at_the_end(attempts[-1]) == in_one_piece(user, run_dir)


SWEEP = """
schema: 1
cluster: rcc
device: cpu
workload: {script: src/train.py, args: {width: 8}, samples_per_step: 4}
layout: {nodes: 2, gpus_per_node: 2, physical_cores_per_rank: 1}
measure: {warmup_steps: 4, steps: 30, resume: true, telemetry_hz: 0, comm: on}
slurm: {walltime_min: 10}
"""

SCRIPT = """
import argparse
import os
import signal
import time

import torch
import torch.distributed as dist

from hpcddp.probe import measure
from nets import network

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int)
torch.set_num_threads(1)
dist.init_process_group("gloo")
net = network(parser.parse_args().width)
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
first = not int(os.environ.get("SLURM_RESTART_COUNT") or 0)


def save(folder):
    if dist.get_rank() == 0:
        torch.save(net.state_dict(), folder / "last.pt")


with measure(model, optimizer, samples_per_step=4, save_checkpoint=save) as steps:
    if steps.checkpoint_dir is not None:
        net.load_state_dict(torch.load(steps.checkpoint_dir / "last.pt"))
    for number, batch in enumerate(steps([torch.randn(4, 8)] * 99)):
        loss = steps.loss(model(batch).square().mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.55 if first else 0)
        while first and number == 8 and signal.SIGUSR2 not in signal.sigpending():
            time.sleep(0.01)
dist.destroy_process_group()
"""
"""Ranks ask what to do after each step of the first attempt, and wait in one of them until the signal has reached them."""

NETS = """
import torch


def network(width):
    torch.manual_seed(0)
    return torch.nn.Linear(width, width)
"""


@pytest.mark.soak
def test_a_script_goes_on_after_a_requeue(rcc_twin: Twin, tmp_path: Path) -> None:
    """Its module travels, also to the attempt after the requeue, whatever becomes of the file; the run counts, with all steps."""
    user = User(rcc_twin, tmp_path)
    (user.home / "src").mkdir()
    for name, text in {"study.yaml": SWEEP, "src/train.py": SCRIPT, "nets.py": NETS}.items():
        (user.home / name).write_text(text, encoding="utf-8")
    user.hpcddp("submit", "study.yaml", "-y")
    (entry,) = user.json("status", "study", exit_code=3)["studies"][0]["runs"]
    job, run_dir = entry["job"], user.home / "study" / entry["label"] / "r1"
    wait_for_steps(user, run_dir / f"{job}.0")
    (user.home / "nets.py").unlink()
    user.twin.run(["scancel", "--signal=USR2", job])
    user.wait_until_completed()
    attempts = [run_dir / f"{job}.{restart}" for restart in (0, 1)]
    ends = [read(attempt / "end.json") for attempt in attempts]
    assert [end["state"] for end in ends] == ["interrupted", "done"]
    assert ends[0]["reason"].endswith("the job is requeued and resumes from it")
    assert counted_steps(run_dir, attempts[-1]) == list(range(34))
    (run,) = load_study(single_study(user.home / "study")).runs
    assert (run.state, run.reason, run.restarts) == ("counts", None, 1)
    assert run.exchange is not None
    assert run.point is not None
    assert (run.point.workload.model, run.point.layout.nodes) == ("train:Linear", 2)
    (study,) = user.json("status", "study")["studies"]
    assert [each["phase"] for each in study["runs"]] == ["done"]


SLURMD_TIMEOUT_S = 10

MESSAGE_TIMEOUT_S = 3
"""Slurm notices a loss SLURMD_TIMEOUT_S and one or two fruitless questions later; each takes it up to 2 s more than this."""

LOST = """
        written = any(pathlib.Path("../..").glob(f"*/r1/*.{{restart}}/checkpoints/[0-9]*"))
        time.sleep((60 if written else 1) if restart in range({losses}) else 0)
"""
"""Ranks look after each step that takes a second; once there is a checkpoint, they wait longer than Slurm."""

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


@pytest.mark.soak
@pytest.mark.parametrize("ways", [["stands still"], ["slurmd dies", "stands still"]])
def test_a_run_that_loses_nodes(twin: Twin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ways: list[How]) -> None:
    """Ranks of a node that stood still wake when the run is done, write into their own attempt's files, and end."""
    user = User(twin, tmp_path, {"HPCDDP_HANG_S": "600"})  # Slurm shall notice, not the ranks
    job, run_dir = submitted(user, STEPS, LOST.format(losses=len(ways)).strip(), ", checkpoint_every_min: 0.01")
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
