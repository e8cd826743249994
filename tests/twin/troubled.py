"""Models in which something happens to a rank: tests put this file beside their sweep."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

STEP_S = 0.05

_TENSORS: list[torch.Tensor] = []


class Troubled(nn.Module):
    """One layer; before each of its steps `happens` is called with the number of the step."""

    def __init__(self, happens: Callable[[int], object]) -> None:
        super().__init__()
        self.layer, self._happens, self._steps = nn.Linear(784, 10), happens, itertools.count()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self._happens(next(self._steps))
        out: torch.Tensor = self.layer(images.flatten(1))
        return out


def _grow(step: int) -> None:
    """By 800 MB that are written to, once."""
    if step == 0:
        _TENSORS.append(torch.ones(800 << 20, dtype=torch.uint8))
    time.sleep(STEP_S)


def greedy(classes: int) -> nn.Module:
    return Troubled(_grow)


def _begins(kind: str, step: int) -> bool:
    """In its 31st step rank 1 leaves word of the moment."""
    if step != 30 or os.environ["SLURM_PROCID"] != "1":
        return False
    Path(f"began.{kind}").write_text(repr(time.time()))
    return True


def died(classes: int) -> nn.Module:
    """In the middle of an all-reduce."""
    model = Troubled(lambda step: model.layer.weight.register_hook(_kill) if _begins("died", step) else None)  # type: ignore[no-untyped-call]
    return model


def _kill(_: torch.Tensor) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hung(classes: int) -> nn.Module:
    return Troubled(lambda step: time.sleep(1000) if _begins("hung", step) else None)
