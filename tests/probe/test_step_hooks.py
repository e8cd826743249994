"""Which marks the hooks set, in loops where forward or backward is not where a plain loop has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hpcddp.probe.step_hooks import BatchSize, StepHooks

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


def image(size: int = 5) -> torch.Tensor:
    return torch.zeros(3, size, size)


@pytest.mark.parametrize(
    ("batches", "sizes"),
    [
        ([torch.zeros(4, 9), torch.zeros(2, 9)], [4, 2]),
        ([(torch.zeros(4, 9), torch.zeros(4)), (torch.zeros(1, 9), torch.zeros(1))], [4, 1]),
        ([{"ids": torch.zeros(4, 9), "n": torch.tensor(3)}, {"ids": torch.zeros(3, 2), "n": torch.tensor(3)}], [4, 3]),
        ([([image(5), image(6), image(7), image(8)], ({}, {}, {}, {})), ([image()], ({},))], [4, 1]),  # pictures of any size
        ([torch.zeros(35, 4), torch.zeros(20, 4)], [4, 4]),  # time before batch
        ([(torch.zeros(35, 4), torch.zeros(140)), (torch.zeros(35, 2), torch.zeros(70))], [4, 2]),
        ([7, 8], [None, None]),
        ([{"text": "abc"}], [None]),
    ],
)
def test_samples_of_a_batch(batches: list[Any], sizes: list[int | None]) -> None:
    size = BatchSize(4)
    assert [size.of(batch, None) for batch in batches] == sizes


def test_the_loader_tells_the_place() -> None:
    loads = DataLoader(TensorDataset(torch.zeros(8, 8)), batch_size=4)
    assert [BatchSize(8).of(batch, loads) for batch in loads] == [4, 4]
