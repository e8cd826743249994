"""Checkpoints of what lies on a GPU."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcddp.worker.training import preemption
from hpcddp.worker.training.trainer import Trainer
from tests.gpu import ranks
from tests.gpu.determinism import same_bits_every_time
from tests.gpu.marks import touches

STEPS, STOPPED_AFTER = 12, 5


def stop_after(steps: int | None) -> Callable[[], None]:
    """What a rank does before it runs: nothing, or see to it that it is told to stop after so many steps."""

    def prepare() -> None:
        same_bits_every_time()
        vars(preemption)["POLL_EVERY_S"] = 0.0  # after every step
        real, steps_done = Trainer.step, 0

        def step(self: Trainer, *arguments: Any) -> Any:
            nonlocal steps_done
            steps_done += 1
            loss = real(self, *arguments)
            if steps_done == steps:
                os.kill(os.getpid(), signal.SIGUSR2)
            return loss

        Trainer.step = step  # type: ignore[method-assign, assignment]

    return prepare


def at_the_end(attempt: ranks.Attempt) -> list[str]:
    """Checksums of parameters, and of buffers where the model has any."""
    attempt.check_done()
    compared = [gate for gate in attempt.end["gates"] if gate["name"] in ("parameters agree", "buffers agree")]
    return [gate["evidence"].split()[-1] for gate in compared]


@touches(
    "hpcddp/worker/training/resume.py",
    "hpcddp/worker/training/ddp_warmup.py",
    "hpcddp/worker/training/checkpoint.py",
    stand_in="tensors lie in the host's memory; a GPU's random numbers are none",
)
@pytest.mark.parametrize("precision", ["fp32", pytest.param("fp16", marks=pytest.mark.soak)])
def test_a_run_in_two_parts_trains_the_same(tmp_path: Path, precision: str) -> None:
    """Bit for bit, where torch is told to compute the same bits every time: model, optimizer, scaler and random numbers."""
    measure = {"resume": True, "checkpoint_every_min": 0.0}
    point = ranks.gpu_point(precision=precision, warmup=2, steps=STEPS, cudnn_benchmark=False, measure=measure)
    in_one = ranks.run_point(tmp_path / "one", point, before=stop_after(None))
    first = ranks.run_point(tmp_path / "two", point, job="7", before=stop_after(STOPPED_AFTER))
    assert first.end["state"] == "interrupted", first.outcomes[0].output
    second = ranks.run_point(tmp_path / "two", point, job="8", before=stop_after(None))
    assert second.launch["resumed"]["step"] == first.end["steps"]
    assert at_the_end(second) == at_the_end(in_one)
