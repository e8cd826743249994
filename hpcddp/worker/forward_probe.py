"""One forward of the same batch on every rank: what differs by rank outside parameters and buffers shows in what it computes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from hpcddp.data.sampling import generator_for
from hpcddp.worker.rank_result import ForwardScores
from hpcddp.worker.training.ddp_warmup import restored
from hpcddp.worker.training.trainer import Trainer

SAMPLES = 2
"""Random pictures: ranks that see other data have a gate of their own."""

VALUES = 64
"""Of the scores, evenly spread: of two samples of 1,000 classes one in thirty. A value that differs by rank moves all of them."""

SEED = 7
"""Of what a model draws at random in evaluation mode, too."""


def probe(trainer: Trainer, shape: tuple[int, int, int]) -> ForwardScores:
    """What this rank computes, or why it could not. All ranks call it, outside the timed steps.

    The model itself is called as evaluation calls it, in evaluation mode. Modes, buffers and random numbers are afterwards what
    they were, and cuDNN looks for no algorithm, so that training goes on to the same bits.
    """
    images = torch.randint(256, (SAMPLES, *shape), dtype=torch.uint8, generator=generator_for("probe", shape))
    try:
        with restored(trainer.module, trainer.device), _evaluating(trainer.module), _without_search(), torch.no_grad():
            torch.manual_seed(SEED)
            with trainer.autocast():
                scores = trainer.module(trainer.normalize(images.to(trainer.device)))
            found = scores.double().flatten().cpu()
            if trainer.sharding:
                trainer.sharding.reshard()
    except Exception as error:  # whatever a user's model says to two random pictures: it may still train on its own
        print(f"hpcddp: the model was not compared over ranks: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return ForwardScores(error=f"{type(error).__name__}: {error}".splitlines()[0][:200])
    return ForwardScores(values=tuple(found[torch.linspace(0, len(found) - 1, VALUES).long()].tolist()))


@contextlib.contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    before = [(each, each.training) for each in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for each, training in before:
            each.training = training


@contextlib.contextmanager
def _without_search() -> Iterator[None]:
    cudnn: Any = torch.backends.cudnn
    before = cudnn.benchmark
    cudnn.benchmark = False
    try:
        yield
    finally:
        cudnn.benchmark = before
