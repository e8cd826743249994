"""Models in which something happens to a rank: tests put this file beside their sweep."""

from __future__ import annotations

import ctypes
import datetime
import itertools
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from hpcddp.worker.telemetry.node import node_memory

NEW_MOUNTS = 0x20000
"""CLONE_NEWNS of sched.h."""

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


def _starve(_: int) -> None:
    """Three times what the node has left; the limit is for kernels that promise more than there is."""
    limit_bytes = 3 * node_memory().available
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, resource.RLIM_INFINITY))
    torch.empty(limit_bytes, dtype=torch.uint8)


def _grow(step: int) -> None:
    """By 800 MB that are written to, once."""
    if step == 0:
        _TENSORS.append(torch.ones(800 << 20, dtype=torch.uint8))
    time.sleep(STEP_S)


def _fill(_: int) -> None:
    Path("/dev/full").write_bytes(b"x")


def _make_read_only(_: int) -> None:
    """The study's folder, for this thread: the mount goes when it ends."""
    study = next(folder for folder in Path.cwd().parents if (folder / "study.json").exists())
    assert ctypes.CDLL(None).unshare(NEW_MOUNTS) == 0
    subprocess.run(["mount", "--bind", study, study], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", study], check=True)


def _come_late(_: int) -> None:
    """To the first exchange, of which nobody knows how long it may take; without this the time-out is 10 min."""
    if os.environ["SLURM_PROCID"] == "1":
        time.sleep(1000)
    dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))._set_default_timeout(
        datetime.timedelta(seconds=3)
    )


def _stand_still(step: int) -> None:
    """Once the others have heard that it is in its steps."""
    time.sleep(STEP_S)
    if os.environ["SLURM_PROCID"] == "1" and step * STEP_S > 5:
        os.kill(os.getpid(), signal.SIGSTOP)


def starved(classes: int) -> nn.Module:
    return Troubled(_starve)


def greedy(classes: int) -> nn.Module:
    return Troubled(_grow)


def full(classes: int) -> nn.Module:
    return Troubled(_fill)


def readonly(classes: int) -> nn.Module:
    return Troubled(lambda step: _make_read_only(step) if step == 10 else None)


def late(classes: int) -> nn.Module:
    return Troubled(_come_late)


def stopped(classes: int) -> nn.Module:
    return Troubled(_stand_still)


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
