"""Passes through the model before the first step, so that no timed step compiles it or builds DDP's buckets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from hpcddp.data import Batch
from hpcddp.worker.training.trainer import Trainer

REBUILDING_PASSES = 2
"""Backward passes after which DDP builds its buckets no more."""


def compile_now(trainer: Trainer, batch: Batch) -> float:
    """Seconds until forward and backward of a batch such as training has (on the device) were compiled and have run once.

    Compiling happens when a model is first called. All ranks call it, before their buckets are timed: gradients do travel,
    because in a static graph DDP cannot do without in its first backward.
    """
    began = time.perf_counter()
    warm_up_pass(trainer, batch)
    if trainer.device.type == "cuda":
        torch.cuda.synchronize(trainer.device)
    return time.perf_counter() - began


def warm_up_buckets(trainer: Trainer, batch: Batch, made: int) -> None:
    """Makes DDP exchange gradients as it does after `made` steps of a run.

    DDP begins with buckets made from the model's parameters in reverse order. Its first backward notes in which order gradients
    come, and its second forward fills the buckets anew in rank 0's order, once and for all (Reducer::rebuild_buckets in torch's
    reducer.cpp; with static_graph the second and the third). Where in a bucket a gradient lies decides in which order an all-
    reduce adds up the ranks' parts, and from three ranks on that order changes the last bits of a sum. So a process's first
    steps differ from all later ones, and a run resumed at step n by a new process would differ from an uninterrupted one. After
    as many passes as the run has made, two at most, the buckets are those of its step n.
    """
    for _ in range(min(made, REBUILDING_PASSES)):
        warm_up_pass(trainer, batch)


def warm_up_pass(trainer: Trainer, batch: Batch) -> None:
    """Forward and backward of a batch such as training has (on the device), gradients exchanged and thrown away. Random numbers
    and BatchNorm's statistics are put back, parameters are not touched. All ranks call it, before their buckets are timed."""
    trainer.model.train()
    with restored(trainer.module, trainer.device):
        trainer.gradients(batch, _unmarked)
        trainer.optimizer.zero_grad(set_to_none=True)


def _unmarked(_: str) -> None: ...


@contextmanager
def restored(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Random numbers and buffers are afterwards what they were before."""
    before = [buffer.clone() for buffer in module.buffers()]
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield
    with torch.no_grad():
        for buffer, value in zip(module.buffers(), before, strict=True):
            buffer.copy_(value)
