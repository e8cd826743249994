"""What breaks on a GPU, or beside it, ends the run with a sentence."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from hpcddp.core.point import Data
from hpcddp.worker.training.trainer import Trainer
from tests.gpu import ranks
from tests.gpu.marks import need_gpus, touches
from tests.gpu.results import Figures
from tests.worker import given

HERE = "tests.gpu.test_faults"

ENDED_S = 30.0
"""From a rank's death to the end of all: it is noticed by its connection, long before NCCL's own ten minutes."""


class WrongLabels(TensorDataset):
    """Its labels are of eleven classes, and it says ten: a GPU's kernel refuses that, and its context is lost."""

    classes = 10

    def __init__(self, root: str | None, split: str) -> None:
        images, labels = given.mnist(1024).batch(torch.arange(1024))
        super().__init__(images, labels.fill_(10))


@touches("hpcddp/worker/finish.py", "hpcddp/worker/timing/steplog.py", stand_in="a processor raises at once, and goes on")
def test_an_error_of_the_gpu_is_a_sentence(tmp_path: Path) -> None:
    """A device-side assertion, after which every call of CUDA fails: end.json is written, and the process ends."""
    point = ranks.gpu_point(1, model="mnist-cnn", data=Data(name=f"{HERE}:WrongLabels"), batch_per_gpu=32)
    attempt = ranks.run_point(tmp_path, point)
    assert [outcome.code for outcome in attempt.outcomes] == [1]
    end = attempt.end
    assert end["state"] == "failed"
    assert end["reason"].startswith("rank 0 on node0: ")
    assert end["fault"]["kind"] == "error"


def die_in_step_3() -> None:
    """Of rank 1."""
    real, steps_done = Trainer.step, 0

    def step(self: Trainer, *arguments: Any) -> Any:
        nonlocal steps_done
        steps_done += 1
        if steps_done == 3 and os.environ["SUBMITIT_LOCAL_GLOBALID"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, *arguments)

    Trainer.step = step  # type: ignore[method-assign, assignment]


@pytest.mark.timed
@touches(
    "hpcddp/worker/watchdog/thread.py",
    "hpcddp/worker/watchdog/progress.py",
    "hpcddp/worker/faults.py",
    stand_in="NCCL is gloo, whose collectives fail when a rank dies; NCCL's wait",
)
def test_a_rank_that_dies_ends_all(tmp_path: Path, figures: Figures) -> None:
    """Others wait for it in a kernel of NCCL: they are ended in seconds, and end.json names it."""
    need_gpus(2)
    begin_s = time.monotonic()
    attempt = ranks.run_point(tmp_path, ranks.gpu_point(steps=ranks.steps(2000, 200)), before=die_in_step_3)
    assert all(outcome.code for outcome in attempt.outcomes)
    assert "rank 1" in attempt.end["reason"]
    figures.add("ended_s", time.monotonic() - begin_s, most=ENDED_S + ranks.steps(60, 60))
