"""The communication hook changes no bit of what is trained, and tells when each bucket's all-reduce began and ended."""

from __future__ import annotations

import threading
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch.futures import Future

from hpcddp.core.point import Ddp, Workload
from hpcddp.core.records import BUCKET_COLUMNS, STEP_COLUMNS
from hpcddp.worker.comm.hook import ThreadStates, time_buckets
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import ProcessGroup, join
from hpcddp.worker.timing.clock import HostClock
from hpcddp.worker.timing.steptimer import Row, StepTimer, TimedStep
from hpcddp.worker.training.trainer import make_trainer
from tests.worker import forked, given

STEPS = 4
GRADIENT_BYTES = 4 * 421_642
"""The MNIST CNN's, in fp32."""

VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"accumulate": 2},
    {"ddp": Ddp(static_graph=True)},
    {"ddp": Ddp(gradient_as_bucket_view=True)},
    {"ddp": Ddp(gradient_as_bucket_view=True), "accumulate": 2},
    {"ddp": Ddp(bucket_cap_mb=0.01)},
)


class Trained(NamedTuple):
    parameters: list[torch.Tensor]
    steps: list[TimedStep]


def train(workload: Workload, group: ProcessGroup, *, hooked: bool) -> Trained:
    """Some steps of one rank, each on samples of its own."""
    source, samples = given.mnist(64), workload.batch_per_gpu
    trainer = make_trainer(workload, source, group.device, group.rank.rank)
    timer = StepTimer(HostClock())
    if hooked:
        assert trainer.ddp
        time_buckets(trainer.ddp, timer)
    timer.restart()
    for step in range(STEPS):
        first = samples * (step * group.rank.world + group.rank.rank)
        trainer.step(source.batch(torch.tensor([index % 64 for index in range(first, first + samples)])), timer.mark)
        timer.close_step(0)
    return Trained([parameter.detach() for parameter in trainer.module.parameters()], list(timer.drain()))


def train_without_and_with(group: ProcessGroup, workload: Workload) -> tuple[Trained, Trained]:
    return train(workload, group, hooked=False), train(workload, group, hooked=True)


def train_each(group: ProcessGroup, workloads: list[Workload]) -> list[Trained]:
    return [train(workload, group, hooked=True) for workload in workloads]


def same_bits(ours: Trained, theirs: Trained) -> bool:
    return all(torch.equal(*pair) for pair in zip(ours.parameters, theirs.parameters, strict=True))


@pytest.mark.dear
@pytest.mark.parametrize("ranks", [1, 3])
def test_the_hook_changes_no_bit(tmp_path: Path, ranks: int) -> None:
    """Parameters after several steps are those without a hook, ==, also where 1 / ranks is no exact number."""
    of_ranks = forked.in_group(tmp_path, ranks, train_without_and_with, given.workload())
    for bare, hooked in of_ranks:
        assert same_bits(hooked, bare)
        assert same_bits(hooked, of_ranks[0][1])
        assert not any(step.buckets for step in bare.steps)


@pytest.mark.dear
def test_every_gradient_travels_once_and_inside_its_step(tmp_path: Path) -> None:
    for of_variants in forked.in_group(tmp_path, 2, train_each, [given.workload(**changes) for changes in VARIANTS]):
        for trained in of_variants:
            assert len(trained.steps) == STEPS
            for step in trained.steps:
                check_buckets(step)
            assert len(trained.steps[-1].buckets) > 1  # once DDP knows in which order gradients come


def check_buckets(step: TimedStep) -> None:
    buckets = [dict(zip(BUCKET_COLUMNS, bucket, strict=True)) for bucket in step.buckets]
    assert sorted(number(bucket["index"]) for bucket in buckets) == list(range(len(buckets)))
    assert sum(number(bucket["bytes"]) for bucket in buckets) == GRADIENT_BYTES
    begun, total_ns = cell(step.row, "start_ns"), cell(step.row, "total_ns")
    forward_ended = begun + cell(step.row, "forward_ns")  # of all micro-batches: gradients travel with the last
    returned = begun + total_ns - cell(step.row, "optimizer_ns") - cell(step.row, "other_ns")
    for bucket in buckets:
        assert bucket["step"] == step.row[0]
        assert forward_ended < number(bucket["ready_ns"]) < number(bucket["done_ns"]) < returned


def cell(row: Row, column: str) -> int:
    return number(row[STEP_COLUMNS.index(column)])


def number(value: int | None) -> int:
    assert value is not None
    return value


def lose_a_rank(workload: Workload) -> str:
    """What rank 0 hears when its peer leaves in the middle of a step's exchange."""
    group = join(this_rank("local"), "cpu")
    source = given.mnist(8)
    trainer = make_trainer(workload, source, group.device, group.rank.rank)
    assert trainer.ddp
    time_buckets(trainer.ddp, StepTimer(HostClock()))
    if group.rank.rank == 1:
        return ""
    with pytest.raises(RuntimeError) as heard:
        trainer.step(source.batch(torch.tensor([0, 1, 2, 3])), lambda _: None)
    return str(heard.value)


def test_a_failed_all_reduce_is_not_swallowed(tmp_path: Path) -> None:
    heard, _ = forked.values(tmp_path, 2, lose_a_rank, given.workload())
    assert "gloo" in heard.lower() or "connection" in heard.lower()


CALLBACKS = 50


def calls_known(group: ProcessGroup, retain: bool) -> list[list[int]]:
    """Of each of gloo's threads, at each of its callbacks, how many it has run before, as far as it knows."""
    gloo = torch.distributed.distributed_c10d._get_default_group()
    of_thread, states = threading.local(), ThreadStates()
    known = defaultdict[int, list[int]](list)

    def ended(_: Future[list[torch.Tensor]]) -> None:
        calls = getattr(of_thread, "calls", 0)
        known[threading.get_ident()].append(calls)
        of_thread.calls = calls + 1
        if retain:
            states.retain()

    while sum(map(len, known.values())) < CALLBACKS:
        gloo.allreduce([torch.ones(1)]).get_future().then(ended).wait()
        known.pop(threading.get_ident(), None)  # what had ended before it was waited for
    return list(known.values())


def test_a_thread_that_keeps_its_state_knows_its_earlier_calls(tmp_path: Path) -> None:
    (forgotten,) = forked.in_group(tmp_path / "forgotten", 1, calls_known, False)
    assert all(set(calls) == {0} for calls in forgotten)
    (known,) = forked.in_group(tmp_path / "known", 1, calls_known, True)
    assert all(calls == list(range(len(calls))) for calls in known)
