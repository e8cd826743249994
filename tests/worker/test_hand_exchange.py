"""Gradients exchanged by hand: the same training as DDP's and as one process's, told part by part, and what fails is caught."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hpcddp.core.point import ByHand
from hpcddp.worker import training_run
from hpcddp.worker.barriers import steps_barrier
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.training import hand_exchange
from hpcddp.worker.training.hand_exchange import HandExchange
from hpcddp.worker.training.trainer import make_trainer
from tests.worker import forked, given
from tests.worker.test_ddp_is_right import flat, fresh, relative_difference, train_ranks
from tests.worker.test_gates_planted import SOON, failed, planted, small
from tests.worker.test_trainer import MICRO_BATCH

KINDS: tuple[ByHand, ...] = ("gather_scatter", "all_reduce")


@pytest.mark.dear
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_train_what_ddp_and_one_process_would(tmp_path: Path, ranks: int) -> None:
    """After 6 steps every rank has the same parameters, ==, and those of DDP and of one rank with the global batch."""
    source = given.mnist(60)
    (single,) = train_ranks(tmp_path, 1, source, batch_per_gpu=4 * ranks)
    ddp, *_ = train_ranks(tmp_path, ranks, source, batch_per_gpu=4)
    for kind in KINDS:
        by_rank = train_ranks(tmp_path, ranks, source, batch_per_gpu=4, parallel=kind)
        assert all(torch.equal(parameters, by_rank[0]) for parameters in by_rank)
        assert relative_difference(by_rank[0], ddp) < 1e-10
        assert relative_difference(by_rank[0], single) < 1e-10
        assert relative_difference(by_rank[0], flat(fresh("mnist-cnn", 28))) > 1e-3  # they did train


@pytest.mark.dear
def test_buffers_and_micro_batches_as_ddp_has_them(tmp_path: Path) -> None:
    """With BatchNorm, micro-batches and channels_last, too, parameters and buffers are DDP's: rank 0's, handed on once a step."""
    for changes in ({"accumulate": 2}, {"channels_last": True}):
        found = [forked.values(tmp_path, 2, train_two_steps, {"parallel": kind, **changes}) for kind in ("ddp", *KINDS)]
        assert float((found[0][0] - found[0][1]).abs().max()) > 1e-6, "without a broadcast buffers are the rank's own"
        for kind in (1, 2):
            assert all(relative_difference(*pair) < 1e-10 for pair in zip(found[kind], found[0], strict=True))


def two_convolutions(classes: int) -> nn.Module:
    """BatchNorm, and weights that lie otherwise with channels_last."""
    torch.manual_seed(1)
    stem = (nn.Conv2d(1, 4, 3, stride=4), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, stride=3))
    return nn.Sequential(*stem, nn.Flatten(), nn.Linear(16, classes))


def train_two_steps(changes: dict[str, Any]) -> torch.Tensor:
    """Parameters and buffers of a rank after two steps."""
    group = join(this_rank("local"), "cpu")
    source = given.mnist(16)
    workload = given.workload(model="tests.worker.test_hand_exchange:two_convolutions", precision="fp64", **changes)
    trainer = make_trainer(workload, source, group.device, group.rank.rank)
    for step in range(2):
        first = 4 * (2 * step + group.rank.rank)
        trainer.step(source.batch(torch.arange(first, first + 4)), lambda _: None)
    group.leave()
    return torch.cat([value.detach().double().flatten() for value in trainer.module.state_dict().values()])


def marks_and_exchanges(kind: ByHand, accumulate: int) -> tuple[list[str], int]:
    """The marks of a step, and how many gradients were exchanged in it."""
    group = join(this_rank("local"), "cpu")
    source, marks, calls = given.mnist(4), list[str](), list[str]()
    trainer = make_trainer(given.workload(parallel=kind, accumulate=accumulate), source, group.device, group.rank.rank)
    assert trainer.hand_exchange
    average = trainer.hand_exchange._average

    def counted(gradient: torch.Tensor, ranks: int) -> None:
        calls.append(marks[-1])
        average(gradient, ranks)

    trainer.hand_exchange._average = counted
    trainer.step(source.batch(torch.tensor([0, 1, 2, 3])), marks.append)
    group.leave()
    assert set(calls) == {"backward"}
    return marks, len(calls)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_the_exchange_is_exposed_communication(tmp_path: Path, kind: ByHand, accumulate: int) -> None:
    """All of it lies between the end of backward and comm_exposed, with the last micro-batch, once for each parameter."""
    for marks, exchanges in forked.values(tmp_path, 2, marks_and_exchanges, kind, accumulate):
        assert marks == [*(MICRO_BATCH * accumulate), "optimizer"]
        assert exchanges == len(list(fresh("mnist-cnn", 28).parameters()))


def its_own_gradient(kind: ByHand, rank: int) -> None:
    """A rank takes part in the exchange and trains on with its own gradients."""
    real = vars(hand_exchange)[kind]

    def average(gradient: torch.Tensor, ranks: int) -> None:
        own = gradient.clone()
        real(gradient, ranks)
        if rank == 1:
            gradient.copy_(own)

    vars(hand_exchange)[kind] = average


def no_exchange(_: ByHand, __: int) -> None:
    """No rank exchanges anything."""
    HandExchange.exchange = lambda self: None  # type: ignore[method-assign]


@pytest.mark.parametrize("plant", [its_own_gradient, no_exchange])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_that_do_not_arrive(tmp_path: Path, kind: ByHand, plant: Any) -> None:
    """Parameters drift apart, as the gate finds before the first timed step."""
    found = failed(planted(tmp_path, small(parallel=kind, model="mnist-cnn"), functools.partial(plant, kind))[1])
    assert list(found) == ["parameters agree"]
    assert "after step 1 1 of 2 ranks differ from rank 0" in found["parameters agree"]


def one_exchange_left_out(rank: int) -> None:
    """A rank skips the exchange of one step: in the last one, the other waits for it."""
    real, calls = HandExchange.exchange, [0]

    def exchange(self: HandExchange) -> None:
        calls[0] += 1
        if rank != 1 or calls[0] != 5:
            real(self)

    HandExchange.exchange = exchange  # type: ignore[method-assign]
    vars(training_run)["steps_barrier"] = lambda group, steps, _: steps_barrier(group, steps, SOON)


@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_leaves_out_an_exchange(tmp_path: Path, kind: ByHand) -> None:
    """All its steps were made, and the other rank waits: the run fails and says for whom."""
    _, end = planted(tmp_path, small(parallel=kind, model="mnist-cnn"), one_exchange_left_out)
    assert end["state"] == "failed"
    assert "ended after 10 of 10 steps, but rank 0 did not within 2 s" in end["reason"]


def no_broadcast(_: int) -> None:
    """Every rank goes on with the statistics of its own samples."""
    HandExchange.forward = lambda self, images: self.module(images)  # type: ignore[method-assign]


@pytest.mark.parametrize("sound", [True, False])
def test_buffers_are_compared(tmp_path: Path, sound: bool) -> None:
    """A sound run passes the gate of buffers; one whose ranks keep their own fails it."""
    _, end = planted(tmp_path, small(parallel="all_reduce", evaluate=True), (lambda _: None) if sound else no_broadcast)
    assert {gate["name"]: gate["passed"] for gate in end["gates"]}["buffers agree"] is sound
    assert list(failed(end)) == ([] if sound else ["buffers agree"])


def test_one_process_needs_no_exchange(tmp_path: Path) -> None:
    """One rank trains what `parallel: none` does, ==, and no collective is called."""
    (none,) = forked.values(tmp_path, 1, train_two_steps, {"parallel": "none"})
    for kind in KINDS:
        (by_hand,) = forked.values(tmp_path, 1, train_two_steps, {"parallel": kind})
        assert torch.equal(by_hand, none)
