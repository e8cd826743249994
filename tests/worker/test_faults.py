"""Which kind of fault an error is; and ranks that die, stop, hang or fail, as real processes over gloo."""

from __future__ import annotations

import contextlib
import datetime
import errno
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

from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Ddp, Point
from hpcddp.core.records import collectives_file, error_file
from hpcddp.study.diagnosis import BY_SENTENCE
from hpcddp.worker import memory_fit
from hpcddp.worker.faults import fault_of
from hpcddp.worker.ranks import Rank
from hpcddp.worker.training.models import build_model
from hpcddp.worker.watchdog.progress import HANG_VARIABLE, Beat, Connection, Message
from tests.worker import forked, given

RANK = Rank(
    rank=1, local_rank=0, world=2, nodes=2, job="7", restart=0, host="gn02", master_addr="gn01", master_port=1
)  # fmt: skip


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, "disk"),
        (errno.EDQUOT, "disk"),
        (errno.EROFS, "disk"),
        (errno.EIO, "disk"),
        (errno.EFBIG, "disk"),
        (errno.ESTALE, "disk"),
        (errno.ENOMEM, "out_of_memory"),
        (errno.ENOENT, "error"),
        (errno.EACCES, "error"),
    ],
)
def test_not_every_error_of_the_system_is_the_disks(number: int, kind: str) -> None:
    """A file that is missing, or another's, is no matter of room on the disk, nor is memory that a process could not be given."""
    fault = fault_of(OSError(number, os.strerror(number), "/scratch/x"), RANK)
    assert fault.kind == kind
    assert kind == "out_of_memory" or "`/scratch/x`" in fault.sentence


@pytest.mark.parametrize(
    ("words", "kind"),
    [("could not restore the optimizer", "error"), ("wait for key in TCPStore", "contact"), ("store->get() failed", "contact")],
)
def test_the_store_is_where_ranks_meet(words: str, kind: str) -> None:
    assert fault_of(RuntimeError(words), RANK).kind == kind


def test_the_disk_may_be_the_cause_of_an_error_in_our_words() -> None:
    for number, kind in ((errno.EIO, "disk"), (errno.ENOENT, "user")):
        error = HpcddpError("the checkpoint could not be written")
        error.__cause__ = OSError(number, os.strerror(number))
        assert fault_of(error, RANK).kind == kind


@pytest.mark.parametrize("words", ["FIND was unable to find an engine to execute", "Unable to find a valid cuDNN algorithm"])
@pytest.mark.parametrize("ooms", [0, 2])
def test_a_convolution_that_cudnn_cannot_compute(monkeypatch: pytest.MonkeyPatch, words: str, ooms: int) -> None:
    """cuDNN says the same where its workspaces find no memory and where the GPU lacks the precision: torch's counter tells."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda gpu: {"num_ooms": ooms})
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda gpu: (2**30, 16 * 2**30))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda gpu: "Tesla V100")
    for name in ("memory_reserved", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda gpu: 15 * 2**30)
    fault = fault_of(RuntimeError(words), RANK)
    if ooms:
        assert fault.kind == "out_of_memory"
        assert "memory of GPU 0 (Tesla V100) ran out: 15.0 GiB of 16.0 GiB were taken" in fault.sentence
    else:
        assert fault.kind == "user"
        assert "bf16" in fault.sentence


@pytest.mark.parametrize("words", ["rank 1 on gn02 finds no GPU", "finds no GPU"])
def test_a_rank_is_named_once(words: str) -> None:
    assert fault_of(HpcddpError(words), RANK).sentence in ("rank 1 on gn02 finds no GPU", "rank 1 on gn02: finds no GPU")


@pytest.mark.parametrize(
    "words",
    ["[Errno 12] Cannot allocate memory", "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes."],
)
@pytest.mark.parametrize("free", [1, 500])
def test_memory_that_was_there_did_not_run_out(monkeypatch: pytest.MonkeyPatch, words: str, free: int) -> None:
    monkeypatch.setattr(memory_fit, "_of_process", lambda wanted: None)
    monkeypatch.setattr(memory_fit, "_of_node", lambda *_: memory_fit.Memory("memory of the node", (free + 2) << 30, 2 << 30))
    sentence = fault_of(RuntimeError(words), RANK).sentence
    part = "memory could not be allocated, though only 2.0 GiB of" if free == 500 else "memory of the node ran out: 2.0 GiB of"
    assert part in sentence
    assert any(pattern.search(sentence) for pattern, _ in BY_SENTENCE) == (free == 500)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (
            "NCCL error in: x.cpp:1, unhandled system error\nncclSystemError: System call\nLast error:\nCall to recv failed",
            "Call to",
        ),
        (
            "NCCL error in: x.cpp:1, remote process exited\nLast error:\nException raised from f\nframe #0: x",
            "NCCL error in: x.cpp:1",
        ),
        ("[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.1.1]:3456", "Connection closed by peer"),
    ],
)
def test_the_line_of_a_message_that_tells_is_quoted(words: str, part: str) -> None:
    assert f"lost contact with another rank ({part}" in fault_of(RuntimeError(words), RANK).sentence


STEP = 4
"""In which it happens: the first steps may take what they take, so nobody hangs in them."""


BEAT_IN_STEPS = threading.Event()
"""This rank has sent a beat from its steps."""


def seconds_to_hang(_: int) -> None:
    os.environ[HANG_VARIABLE] = "5"
    send = Connection.send

    def noting(connection: Connection, message: Message) -> None:
        send(connection, message)
        if isinstance(message, Beat) and message.stepping:
            BEAT_IN_STEPS.set()

    Connection.send = noting  # type: ignore[assignment, method-assign]


def ran(study: Path, what: Point) -> forked.Ran:
    """Every rank is a node of its own."""
    return forked.ran(study, what, seconds_to_hang, may_fail=True)


def named(end: dict[str, Any]) -> tuple[str, int, str]:
    return end["fault"]["kind"], end["fault"]["rank"], end["fault"]["host"]


def point(model: str, ranks: int = 3, **changes: Any) -> Point:
    return given.point(ranks, nodes=ranks, warmup=1, steps=20, model=f"tests.worker.test_faults:{model}", **changes)


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
    found = ran(tmp_path, point(model))
    assert found.codes == [-9 if other == rank else 1 for other in range(3)]
    assert (found.end["state"], *named(found.end)) == ("failed", "died", rank, f"node{rank}")
    assert found.end["reason"].startswith(f"rank {rank} on node{rank} died without an error message")


@pytest.mark.timed
def test_a_rank_that_hangs_is_named_with_the_place(tmp_path: Path) -> None:
    found = ran(tmp_path, point("middle_hangs"))
    reason = found.end["reason"]
    assert (found.codes, *named(found.end)) == ([1, 1, 1], "hung", 1, "node1")
    assert f"in step {STEP}" in reason
    assert "(in hangs, test_faults.py line" in reason
    assert "time.sleep(1000)" in found.outcomes[1].output
    waits = r"; collective (\d+) \(all_reduce of Float\[\d+\]\) waits for rank 1, which has started (\d+); in it: ranks 0, 2$"
    collective = re.search(waits, reason)
    assert collective, reason
    assert int(collective[1]) == int(collective[2]) + 1
    for rank in range(3):
        entries = json.loads(collectives_file(found.attempt, rank).read_text())["entries"]
        numbers = [entry["collective_seq_id"] for entry in entries if not entry["retired"]]
        assert numbers[:1] == ([] if rank == 1 else [int(collective[1])])


@pytest.mark.timed
@pytest.mark.parametrize(("model", "rank"), [("middle_stops", 1), ("first_stops", 0)])
def test_a_rank_that_is_stopped_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, rank: int) -> None:
    monkeypatch.setenv("STUDY", str(tmp_path))
    found = ran(tmp_path, point(model))
    assert found.codes == [-9 if other == rank else 1 for other in range(3)]
    assert named(found.end) == ("silent", rank, f"node{rank}")
    assert rank == 0 or "waits for rank 1, whose state is unknown; in it: ranks 0, 2" in found.end["reason"]


def test_a_rank_for_which_others_waited_until_their_time_was_over_is_named(tmp_path: Path) -> None:
    found = ran(tmp_path, point("first_late", ranks=2))
    assert (found.codes, *named(found.end)) == ([1, 1], "late", 0, "node0")
    assert "Timed out waiting 1000ms" in found.end["reason"]
    assert "(in hangs, test_faults.py line" in found.end["reason"]
    assert "time.sleep(1000)" in found.outcomes[0].output


@pytest.mark.dear
def test_an_error_is_the_reason_and_not_what_the_others_miss(tmp_path: Path) -> None:
    found = ran(tmp_path, point("last_fails"))
    assert [error_file(found.attempt, rank).exists() for rank in (1, 2)] == [False, True]
    assert found.codes == [1, 1, 1]
    assert re.fullmatch(r"rank 2 on node2: picture 17 is upside down \(in fails, \S+ line \d+\)", found.end["reason"])
    line = found.end["fault"]["line"]
    assert line == "ValueError: picture 17 is upside down"
    assert line in found.outcomes[2].output


@pytest.mark.dear
def test_memory_that_runs_out_is_told_with_the_batch(tmp_path: Path) -> None:
    end = ran(tmp_path, point("last_fills_memory", batch_per_gpu=64)).end
    assert end["fault"]["kind"] == "out_of_memory"
    assert end["reason"].startswith("rank 2 on node2: memory of the node ran out: ")
    assert "and 1048576.0 GiB more requested, with batch_per_gpu 64" in end["reason"]


def test_values_that_cannot_go_together_are_told_in_their_own_words(tmp_path: Path) -> None:
    end = ran(tmp_path, given.point(1, measure={"comm": "on"}, ddp=Ddp(compression="fp16"))).end
    assert end["reason"].startswith("rank 0 on node0: measure.comm is on and workload.ddp.compression is fp16")
