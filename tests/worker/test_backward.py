"""The end of backward's computation is told once per step, before the exchange behind it is waited for, whatever the model."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch.futures import Future

from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.training.backward import Backward
from hpcddp.worker.training.trainer import make_trainer
from tests.worker import forked, given

STEPS = 3
"""The first one hooks its loss, the others a parameter."""

PATIENCE_S = 30.0


def marks_of_a_held_exchange() -> list[list[str]]:
    """Of each step, whose gradients come back when the end of backward has been marked, and not before."""
    group = join(this_rank("local"), "cpu")
    source = given.mnist(4)
    trainer = make_trainer(given.workload(), source, group.device, group.rank.rank)
    held: list[tuple[Future[torch.Tensor], torch.Tensor]] = []
    steps: list[list[str]] = []

    def hold(_, bucket):  # type: ignore[no-untyped-def]  # DDP accepts no annotation but its own types
        held.append((Future(), bucket.buffer()))
        return held[-1][0]

    def mark(part: str) -> None:
        steps[-1].append(part)
        while part == "backward" and held:
            future, gradients = held.pop()
            future.set_result(gradients)

    assert trainer.ddp
    trainer.ddp.register_comm_hook(None, hold)
    for _ in range(STEPS):
        steps.append([])
        trainer.step(source.batch(torch.tensor([0, 1, 2, 3])), mark)
    group.leave()
    return steps


def test_the_end_of_backward_is_marked_before_the_exchange_is_waited_for(tmp_path: Path) -> None:
    """In every step: else it would wait for ever."""
    (steps,) = forked.values(tmp_path, 1, marks_of_a_held_exchange, timeout_s=PATIENCE_S)
    assert steps == [["forward", "backward", "comm_exposed", "optimizer"]] * STEPS


def marked(*losses: torch.Tensor, of: nn.Module) -> list[list[str]]:
    """The marks of one backward() after another of a model's losses."""
    backward, found = Backward(of.parameters()), []
    for loss in losses:
        found.append(marks := list[str]())
        backward(loss, marks.append)
    return found


EACH = ["backward", "comm_exposed"]


def test_a_step_that_leaves_out_the_hooked_parameter() -> None:
    """Its whole backward() has been computation: who marks no end of it has not seen an exchange."""
    model = nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 1)])
    first, second, batch = *model, torch.ones(1, 2)
    losses = (first(batch) + second(batch)).sum(), first(batch).sum(), second(batch).sum()
    assert marked(*losses, of=model) == [EACH] * 3


def test_a_parameter_that_no_gradient_reaches_is_not_hooked() -> None:
    """Each step is told of by the hook of one that has a gradient."""
    model, batch = nn.ModuleDict({"used": nn.Linear(2, 1), "unused": nn.Linear(2, 1)}), torch.ones(1, 2)
    assert marked(*(model["used"](batch).sum() for _ in range(3)), of=model) == [EACH] * 3
    assert [name for name, parameter in model.named_parameters() if parameter._backward_hooks] == ["used.bias"]
