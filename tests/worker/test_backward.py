"""The end of backward's computation is told once per step, before the exchange behind it is waited for, whatever the model."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path

import torch
from torch import nn
from torch.futures import Future

from hpcddp.data import Batch
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.training.backward import Backward
from hpcddp.worker.training.learner import Learner, make_learner
from tests.worker import forked, given

STEPS = 3
"""The first one hooks its loss, the others a parameter."""

SLOW_S = 0.2


def steps_of_a_slow_exchange() -> list[dict[str, float]]:
    """Seconds from the mark before to each mark, of steps whose buckets take SLOW_S to come back."""
    meeting = join(this_rank("local"), "cpu")
    source = given.mnist(4)
    learner = make_learner(given.workload(), source, meeting.device, meeting.rank.rank)

    def slow(_, bucket):  # type: ignore[no-untyped-def]  # DDP accepts no annotation but its own types
        exchanged = Future[torch.Tensor]()
        threading.Timer(SLOW_S, exchanged.set_result, [bucket.buffer()]).start()
        return exchanged

    assert learner.ddp
    learner.ddp.register_comm_hook(None, slow)
    found = [seconds_of_parts(learner, source.batch([0, 1, 2, 3])) for _ in range(STEPS)]
    meeting.leave()
    return found


def seconds_of_parts(learner: Learner, batch: Batch) -> dict[str, float]:
    marks = [("", time.perf_counter())]
    learner.step(batch, lambda part: marks.append((part, time.perf_counter())))
    return {part: at - before for (_, before), (part, at) in itertools.pairwise(marks)}


def test_the_exchange_is_behind_the_end_of_backward_in_every_step(tmp_path: Path) -> None:
    """Gradients that come back late delay what is marked `comm_exposed`, and not what is marked `backward`."""
    for steps in forked.values(tmp_path, 1, steps_of_a_slow_exchange):
        assert [list(step) for step in steps] == [["forward", "backward", "comm_exposed", "optimizer"]] * STEPS
        for step in steps:
            assert step["comm_exposed"] > SLOW_S / 2 > step["backward"]


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
