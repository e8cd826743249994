"""Ranks that die, stop, hang or fail, as real processes over gloo: who is named, and where."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.point import Ddp, Point
from hpcddp.core.records import collectives_file, error_file
from hpcddp.worker.main import run
from hpcddp.worker.training.models import build_model
from hpcddp.worker.watchdog.messages import Connection, Message
from hpcddp.worker.watchdog.progress import HANG_VARIABLE, Beat
from tests.worker import forked, given

STEP = 4
"""In which it happens: the first steps may take what they take, so nobody hangs in them."""


def end_of(study: Path, what: Point) -> tuple[dict[str, Any], list[forked.Outcome]]:
    """end.json, and how each rank ended; every rank is a node of its own."""
    spec = given.job(study, what)
    outcomes = forked.ranks(study / "output", what.ranks, run_with, spec_to_dict(spec), nodes=what.layout.nodes)
    return json.loads((attempt(study, what) / "end.json").read_text()), outcomes


def attempt(study: Path, what: Point) -> Path:
    return given.job(study, what).attempt_dir("7", 0)


BEAT_IN_STEPS = threading.Event()
"""This rank has sent a beat from its steps."""


def run_with(spec: dict[str, Any]) -> Any:
    os.environ[HANG_VARIABLE] = "5"
    send = Connection.send

    def noting(connection: Connection, message: Message) -> None:
        send(connection, message)
        if isinstance(message, Beat) and message.stepping:
            BEAT_IN_STEPS.set()

    Connection.send = noting  # type: ignore[assignment, method-assign]
    return run(spec)


def point(model: str, ranks: int = 3, **changes: Any) -> Point:
    return given.point(ranks, nodes=ranks, warmup=1, steps=20, model=f"tests.worker.test_faults_in_ranks:{model}", **changes)


class In(nn.Module):
    """The MNIST CNN, with something that `rank` does in its `step`."""

    def __init__(self, rank: int, happens: Any, step: int = STEP) -> None:
        super().__init__()
        self.inner = build_model("mnist-cnn", classes=10, height=28, seed=1)
        self._is_mine = os.environ["SUBMITIT_LOCAL_GLOBALID"] == str(rank)
        self._happens = happens
        self._happens_in = step
        self._step = -1

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self._step += self.training  # not where ranks are compared before the first step
        if self.training and self._is_mine and self._step == self._happens_in:
            self._happens(self)
        out: torch.Tensor = self.inner(images)
        return out


def dies(_: nn.Module) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dies_in_the_exchange(model: nn.Module) -> None:
    """When its last gradient is computed: the buckets of all others are on their way."""
    first = next(iter(model.parameters()))
    first.register_hook(dies)  # type: ignore[no-untyped-call]


def hangs(_: nn.Module) -> None:
    time.sleep(1000)


def stops(_: nn.Module) -> None:
    """As on a node that is lost: the connections stay, and nothing comes. Killed once the others have said so."""
    assert BEAT_IN_STEPS.wait(100)
    mine = os.getpid()
    if os.fork():
        os.kill(mine, signal.SIGSTOP)
        return
    study = Path(os.environ["STUDY"])
    give_up_at = time.monotonic() + 100
    while not list(study.glob("*/r1/7.0/end.json")) and time.monotonic() < give_up_at:
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.kill(mine, signal.SIGKILL)
    os._exit(0)


def fails(_: nn.Module) -> None:
    raise ValueError("picture 17 is upside down")


def fills_memory(_: nn.Module) -> None:
    torch.empty(1 << 50, dtype=torch.uint8)


def at(rank: int, happens: Callable[[nn.Module], None]) -> Callable[[int], nn.Module]:
    """A model as workload.model names one."""
    return lambda classes: In(rank, happens)


def first_late(classes: int) -> nn.Module:
    """To the first exchange; the others wait 1 s for it, instead of 10 min."""
    model = In(0, hangs, step=0)
    soon = datetime.timedelta(seconds=1)
    model.register_forward_pre_hook(
        lambda *_: dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))._set_default_timeout(soon)
    )
    return model


first_dies, last_dies = at(0, dies_in_the_exchange), at(2, dies_in_the_exchange)
middle_hangs = at(1, hangs)
first_stops, middle_stops = at(0, stops), at(1, stops)
last_fails, last_fills_memory = at(2, fails), at(2, fills_memory)


@pytest.mark.dear
@pytest.mark.parametrize(("model", "rank"), [("last_dies", 2), ("first_dies", 0)])
def test_a_rank_that_is_killed_in_an_all_reduce_is_named(tmp_path: Path, model: str, rank: int) -> None:
    """gloo says that some connection broke; end.json says which rank died, on which host, in which step. All others end too."""
    end, outcomes = end_of(tmp_path, point(model))
    assert [outcome.code for outcome in outcomes] == [-9 if other == rank else 1 for other in range(3)]
    assert end["state"] == "failed"
    assert (end["fault"]["kind"], end["fault"]["rank"], end["fault"]["host"]) == ("died", rank, f"node{rank}")
    assert end["reason"].startswith(f"rank {rank} on node{rank} died without a word")


@pytest.mark.timed
def test_a_rank_that_hangs_is_named_with_the_place(tmp_path: Path) -> None:
    """The others wait for it in their all-reduce and are not to blame; where it hangs is told, its stack is in its log."""
    end, outcomes = end_of(tmp_path, point("middle_hangs"))
    assert [outcome.code for outcome in outcomes] == [1, 1, 1]
    assert (end["fault"]["kind"], end["fault"]["rank"], end["fault"]["host"]) == ("hung", 1, "node1")
    assert f"in step {STEP}" in end["reason"]
    assert "(in hangs, test_faults_in_ranks.py line" in end["reason"]
    assert "time.sleep(1000)" in outcomes[1].output
    waits = r"; collective (\d+) \(all_reduce of Float\[\d+\]\) waits for rank 1, which has begun (\d+); in it: ranks 0, 2$"
    found = re.search(waits, end["reason"])
    assert found
    assert int(found[1]) == int(found[2]) + 1
    for rank in range(3):
        written = json.loads(collectives_file(attempt(tmp_path, point("middle_hangs")), rank).read_text())
        numbers = [entry["collective_seq_id"] for entry in written["entries"] if not entry["retired"]]
        assert numbers[:1] == ([] if rank == 1 else [int(found[1])])


@pytest.mark.timed
@pytest.mark.parametrize(("model", "rank"), [("middle_stops", 1), ("first_stops", 0)])
def test_a_rank_that_is_stopped_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, rank: int) -> None:
    """Its connections stand and it says nothing, as when its node is lost; rank 0 is watched by the last one."""
    monkeypatch.setenv("STUDY", str(tmp_path))
    end, outcomes = end_of(tmp_path, point(model))
    assert [outcome.code for outcome in outcomes] == [-9 if other == rank else 1 for other in range(3)]
    assert (end["fault"]["kind"], end["fault"]["rank"], end["fault"]["host"]) == ("silent", rank, f"node{rank}")
    assert rank == 0 or "waits for rank 1, of which nothing is known; in it: ranks 0, 2" in end["reason"]


def test_a_rank_for_which_others_waited_until_their_time_was_over_is_named(tmp_path: Path) -> None:
    """In the first steps, which may take what they take: its stack is in its log."""
    end, outcomes = end_of(tmp_path, point("first_late", ranks=2))
    assert [outcome.code for outcome in outcomes] == [1, 1]
    assert (end["fault"]["kind"], end["fault"]["rank"], end["fault"]["host"]) == ("late", 0, "node0")
    assert "Timed out waiting 1000ms" in end["reason"]
    assert "(in hangs, test_faults_in_ranks.py line" in end["reason"]
    assert "time.sleep(1000)" in outcomes[0].output


@pytest.mark.dear
def test_an_error_is_the_reason_and_not_what_the_others_miss(tmp_path: Path) -> None:
    """Words and place without the class of the exception, which the log has; the ranks that end with it add no other story."""
    end, outcomes = end_of(tmp_path, point("last_fails"))
    assert [error_file(attempt(tmp_path, point("last_fails")), rank).exists() for rank in (1, 2)] == [False, True]
    assert [outcome.code for outcome in outcomes] == [1, 1, 1]
    assert re.fullmatch(r"rank 2 on node2: picture 17 is upside down \(in fails, \S+ line \d+\)", end["reason"])
    assert end["fault"]["line"] == "ValueError: picture 17 is upside down"
    assert end["fault"]["line"] in outcomes[2].output


@pytest.mark.dear
def test_memory_that_runs_out_is_told_with_the_batch(tmp_path: Path) -> None:
    """How much there was, what was asked for, which batch to take."""
    end, _ = end_of(tmp_path, point("last_fills_memory", batch_per_gpu=64))
    assert end["fault"]["kind"] == "out_of_memory"
    assert end["reason"].startswith("rank 2 on node2: memory of the node ran out: ")
    assert "and 1048576.0 GiB more asked for, with batch_per_gpu 64" in end["reason"]


def test_values_that_cannot_go_together_are_told_in_their_own_words(tmp_path: Path) -> None:
    """A sentence that a user can act on has no class's name before it."""
    end, _ = end_of(tmp_path, given.point(1, measure={"comm": "on"}, ddp=Ddp(compression="fp16")))
    assert end["reason"].startswith("rank 0 on node0: measure.comm is on and workload.ddp.compression is fp16")
