"""Which marks the hooks set, and which steps of a script count, where a loop is not a plain one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from hpcddp.core.records import AFTER_PAUSE, STEP_COLUMNS, WARMUP
from hpcddp.probe.loop_recorder import StepSequence
from hpcddp.probe.step_hooks import StepHooks
from hpcddp.worker.timing.clock import EventClock
from hpcddp.worker.timing.steptimer import StepTimer
from tests.worker.test_steptimer import Stream, cell, rows

PLAIN = ["h2d_exposed", "forward", "backward", "optimizer"]

Optimizers = Sequence[torch.optim.Optimizer]


def marks(
    model: nn.Module, step: Callable[[Optimizers], None], *, of: Sequence[nn.Module] = (), steps: int = 4
) -> list[list[str]]:
    """Of each step, with an optimizer for each module of `of`, else for the model."""
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in of or (model,)]
    found: list[list[str]] = []
    hooks = StepHooks(model, optimizers, lambda part: found[-1].append(part))  # noqa: PLW0108 - another list in each step
    for _ in range(steps):
        found.append([])
        step(optimizers)
    hooks.remove()
    return found


def batch() -> torch.Tensor:
    return torch.randn(2, 4)


def update(optimizers: Optimizers, loss: torch.Tensor) -> None:
    for each in optimizers:
        each.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    for each in optimizers:
        each.step()


def test_a_plain_loop() -> None:
    """Before an optimizer's step nothing is marked: clipping is its own."""
    model = nn.Linear(4, 4)
    assert marks(model, lambda optimizers: update(optimizers, model(batch()).sum())) == [PLAIN] * 4


def test_shards_have_no_hooks() -> None:
    """Autograd reaches what fully_shard gathered, never the shard: its backward is noticed by outputs in all steps."""
    fully_shard: Any = pytest.importorskip("torch.distributed.fsdp").fully_shard
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    try:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        for part in (*model, model):
            fully_shard(part)
        assert marks(model, lambda optimizers: update(optimizers, model(batch()).sum())) == [PLAIN] * 4
    finally:
        dist.destroy_process_group()


def test_a_model_that_the_loop_never_calls() -> None:
    """A list of networks, or a method that is not forward: the optimizer has its own time only."""
    networks = nn.ModuleList([nn.Linear(4, 4)])
    found = marks(networks, lambda optimizers: update(optimizers, networks[0](batch()).sum()))
    assert found == [["other", "optimizer"]] * 4


class Answer:
    """No tensor, nor anything that is known to hold some, such as a distribution."""

    def __init__(self, mean: torch.Tensor) -> None:
        self.mean = mean


class Forecaster(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, inputs: torch.Tensor) -> Answer:
        return Answer(self.layer(inputs))


def test_an_output_of_a_class_of_its_own() -> None:
    """Its backward is not noticed in the first step, which counts nowhere; then a parameter shows it."""
    model = Forecaster()
    first, *others = marks(model, lambda optimizers: update(optimizers, model(batch()).mean.sum()))
    assert first == ["h2d_exposed", "forward", "other", "optimizer"]
    assert others[1:] == [PLAIN] * 2


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.heads, self.calls = nn.Linear(4, 4), nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]), 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        out: torch.Tensor = self.heads[self.calls % 2](self.body(inputs))
        return out


def test_a_parameter_that_is_not_in_every_step() -> None:
    """Where its hook does not fire, nothing is of the optimizer; from then on outputs show the backward."""
    model = Heads()
    first, second, _, *others = marks(model, lambda optimizers: update(optimizers, model(batch()).sum()), steps=6)
    assert (first, second) == (PLAIN, ["h2d_exposed", "forward", "other", "optimizer"])
    assert others == [PLAIN] * 3


def test_a_second_network_behind_the_first() -> None:
    generator, critic = nn.Linear(4, 4), nn.Linear(4, 1)

    def step(optimizers: Optimizers) -> None:
        of_generator, of_critic = optimizers
        made = generator(batch())
        update([of_generator], critic(made).sum())
        update([of_critic], critic(made.detach()).sum())

    assert marks(generator, step, of=(generator, critic))[1:] == [[*PLAIN, "other", "optimizer"]] * 3


def test_a_closure_has_forward_and_backward() -> None:
    model = nn.Linear(4, 4)

    def step(optimizers: Optimizers) -> None:
        def closure() -> torch.Tensor:
            optimizers[0].zero_grad()
            loss: torch.Tensor = model(batch()).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        optimizers[0].step(closure)  # type: ignore[arg-type]

    assert marks(model, step) == [PLAIN] * 4


def script_run(steps: int, warmup: int) -> Any:
    """A run of so many steps in one stretch, behind the first step that counts nowhere."""
    return SimpleNamespace(
        steps=0,
        window=SimpleNamespace(timed_from=warmup, interrupted=False),
        profiled=None,
        log=SimpleNamespace(write_finished=lambda: None),
        pause=lambda: None,
        stretches=lambda: iter([range(steps)]),
    )


def test_the_first_step_counts_nowhere_and_the_warm_up_is_flagged() -> None:
    timer = StepTimer(EventClock(Stream().event))
    sequence = StepSequence(timer, lambda: script_run(3, warmup=2))
    assert [sequence.close(8) for _ in range(4)] == [False, False, False, True]
    flags, samples = (STEP_COLUMNS.index(name) for name in ("flags", "samples"))
    assert [(row[flags], row[samples]) for row in rows(timer.drain())] == [(WARMUP | AFTER_PAUSE, 8), (WARMUP, 8), (0, 8)]


def test_an_evaluation_among_accumulated_batches_is_of_no_step() -> None:
    stream = Stream()
    timer = StepTimer(EventClock(stream.event))
    sequence = StepSequence(timer, lambda: script_run(2, warmup=0))
    sequence.close(8)
    stream.enqueue(1.0)
    timer.mark("backward")
    stream.enqueue(40.0)
    sequence.pause()
    stream.enqueue(2.0)
    timer.mark("backward")
    sequence.close(8)
    (row,) = rows(timer.drain())
    assert (cell(row, "backward_ns"), cell(row, "other_ns"), cell(row, "total_ns")) == (3_000_000, 0, 3_000_000)
