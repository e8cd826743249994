"""One optimizer step: what is marked, in which order, and how often gradients travel."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from hpcddp.worker.learner import make_learner, make_scaler
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from tests.worker import forked, given

MICRO_BATCH = ["forward", "backward", "comm_exposed"]


def one_step(accumulate: int) -> tuple[list[str], int]:
    """The marks of a step, and how many buckets of gradients were exchanged in it (the first step has one bucket)."""
    meeting = join(this_rank("local"), "cpu")
    source, marks, buckets = given.mnist(4), list[str](), list[int]()
    learner = make_learner(given.workload(accumulate=accumulate), source, meeting.device, meeting.rank.rank)

    def counted(group, bucket):  # type: ignore[no-untyped-def]  # DDP accepts no annotation but its own types
        buckets.append(bucket.index())
        return allreduce_hook(group, bucket)

    learner.ddp.register_comm_hook(None, counted)
    learner.step(source.batch([0, 1, 2, 3]), marks.append)
    meeting.leave()
    return marks, len(buckets)


@pytest.mark.parametrize("accumulate", [1, 4])
def test_gradients_travel_once_per_step(tmp_path: Path, accumulate: int) -> None:
    """With the last micro-batch; the end of backward is marked before the exchange is waited for, in all of them."""
    for marks, buckets in forked.values(tmp_path, 2, one_step, accumulate):
        assert marks == [*(MICRO_BATCH * accumulate), "optimizer"]
        assert buckets == 1


def test_an_older_torch_scales_losses_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 2.3 there is torch.cuda.amp.GradScaler only; without fp16 it leaves losses as they are."""
    monkeypatch.delattr(torch.amp, "GradScaler")
    with pytest.warns(FutureWarning, match="deprecated"):
        scaler = make_scaler(torch.device("cpu"), enabled=False)
    assert float(scaler.scale(torch.ones(()))) == 1.0
