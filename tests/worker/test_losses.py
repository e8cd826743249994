"""Losses of every step: read without waiting, recorded by step, and the end of a run in which one is not finite."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.point import Data
from hpcddp.core.records import MOST_LOSS_E9, STEP_COLUMNS, steps_file
from hpcddp.worker.main import run
from hpcddp.worker.timing.clock import EventClock, HostClock
from hpcddp.worker.timing.losses import DeviceLosses
from hpcddp.worker.timing.steplog import AT_ONCE, StepLog
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.divergence import MORE_STEPS
from tests.worker import forked, given
from tests.worker.test_gates_planted import this_rank
from tests.worker.test_steptimer import Stream

LOSS = STEP_COLUMNS.index("loss_e9")
SAMPLES = 64


class Pictures:
    """Random ones, all different."""

    classes, shape = 10, (1, 28, 28)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        draw = torch.Generator().manual_seed(index)
        return torch.randint(256, self.shape, dtype=torch.uint8, generator=draw), index % 10


def pictures(root: str | None, split: str) -> Pictures:
    return Pictures()


def layers(classes: int) -> nn.Module:
    """Neither dropout nor BatchNorm: what a rank computes of a sample does not depend on its others."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.Tanh(), nn.Linear(16, classes))


def losses(study: Path, ranks: int, **changes: Any) -> list[float]:
    """The mean loss of each global batch of 16, over all ranks, from the records alone."""
    what = given.point(
        ranks,
        model="tests.worker.test_losses:layers",
        data=Data(name="tests.worker.test_losses:pictures"),
        batch_per_gpu=16 // ranks,
        precision="fp64",
        steps=10,
        **changes,
    )
    spec = given.job(study, what)
    forked.values(study / "output", ranks, run, spec_to_dict(spec))
    attempt = spec.attempt_dir("7", 0)
    assert json.loads((attempt / "launch.json").read_text())["step_rows"] == 3
    by_rank = []
    for rank in range(ranks):
        with steps_file(attempt, rank).open(newline="") as lines:
            by_rank.append([int(row["loss_e9"]) / 1e9 for row in csv.DictReader(lines)])
    return [sum(step) / ranks for step in zip(*by_rank, strict=True)]


@pytest.mark.dear
def test_global_batches_do_not_depend_on_the_number_of_ranks(tmp_path: Path) -> None:
    """1, 2 and 4 ranks train on the same samples, step by step, to the same parameters: their mean losses are equal to rounding,
    over several epochs and while they change, and with micro-batches as well."""
    single = losses(tmp_path / "1", 1)
    assert len(single) == 12
    assert max(single) - min(single) > 0.1
    for ranks in (2, 4):
        assert losses(tmp_path / str(ranks), ranks) == pytest.approx(single, abs=2e-9)
    assert losses(tmp_path / "parts", 2, accumulate=2) == pytest.approx(single, abs=2e-9)


def row(timer: StepTimer, loss: float | None) -> Any:
    timer.mark("forward")
    if loss is not None:
        timer.loss(torch.tensor(loss, dtype=torch.float64))
    timer.close_step(0)
    (step,) = timer.drain()
    return step.row[LOSS]


@pytest.mark.parametrize(
    ("loss", "cell"),
    [(2.3025850929, 2302585093), (0.0, 0), (None, None), (math.nan, None), (math.inf, None), (1e30, MOST_LOSS_E9), (1e308, None)],
)
def test_a_loss_is_an_integer_in_the_rows(loss: float | None, cell: int | None) -> None:
    """Billionths; what is too large for an exact number stands for all above it, what is none is empty."""
    assert row(StepTimer(HostClock()), loss) == cell


def test_a_loss_on_a_device_is_read_with_its_step() -> None:
    """Copied when the step is made, read when its last mark has passed, into places that are used again."""
    stream, reader = Stream(), DeviceLosses(pinned=False)
    timer = StepTimer(EventClock(stream.event), losses=reader)
    stream.waits = 0
    for number in range(3 * DeviceLosses.POOL_SIZE):
        stream.enqueue(1.0)
        timer.mark("forward")
        timer.loss(torch.tensor(float(number)))
        timer.close_step(0)
        assert list(timer.finished()) == []
        stream.now_ms += 1.0
        (step,) = timer.finished()
        assert step.row[LOSS] == number * 10**9
    assert stream.waits == 0
    assert len(reader._free) == DeviceLosses.POOL_SIZE


def test_what_a_log_knows_of_losses(tmp_path: Path) -> None:
    """The first, the last, and the first that is not finite."""
    with StepLog(StepTimer(HostClock(), first_step=7), tmp_path, 0, buckets=False) as log:
        for loss in (1.5, math.inf, math.nan, 2.5):
            log.timer.loss(torch.tensor(loss))
            log.timer.close_step(0)
        log.pause()
    assert (log.loss_first, log.loss_last, log.not_finite) == (1.5, 2.5, (8, math.inf))


BAD_STEP = 20


def diverges_on_rank_1(classes: int) -> nn.Module:
    """Its scores are no numbers in one step, and its gradients spread."""
    model, calls = layers(classes), [0]

    def spoil(module: nn.Module, _: Any, scores: torch.Tensor) -> torch.Tensor | None:
        if not module.training:
            return None
        calls[0] += 1
        return scores * math.nan if this_rank() == 1 and calls[0] == BAD_STEP + 1 else None

    model.register_forward_hook(spoil)
    return model


@pytest.mark.dear
@pytest.mark.parametrize("steps", [500, BAD_STEP - 1])
def test_the_run_ends_where_a_loss_is_no_number(tmp_path: Path, steps: int) -> None:
    """The rank and the step where it came first are named, though all ranks have it one step later; also in the last step."""
    what = given.point(3, model="tests.worker.test_losses:diverges_on_rank_1", steps=steps)
    spec = given.job(tmp_path, what)
    outcomes = forked.ranks(tmp_path / "output", 3, run, spec_to_dict(spec), timeout_s=60.0)
    attempt = spec.attempt_dir("7", 0)
    end = json.loads((attempt / "end.json").read_text())
    assert [outcome.code for outcome in outcomes] == [1, 1, 1]
    assert (end["state"], end["fault"]["kind"], end["fault"]["rank"]) == ("failed", "diverged", 1)
    assert end["reason"].startswith(f"rank 1 on node0: the loss of step {BAD_STEP} is nan")
    with steps_file(attempt, 1).open(newline="") as lines:
        cells = [row["loss_e9"] for row in csv.DictReader(lines)]
    assert "" not in cells[:BAD_STEP]
    assert cells[BAD_STEP] == ""
    assert len(cells) <= BAD_STEP + 2 * AT_ONCE + MORE_STEPS
