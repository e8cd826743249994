"""What breaks on a GPU or beside it, its memory that runs out, and a run that goes on from its checkpoint."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import TensorDataset

from hpcddp.core.point import Data
from hpcddp.worker.training import preemption
from tests.gpu import ranks
from tests.gpu.device import Figures, is_real, need_gpus, touches
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


@touches("worker/finish.py", "worker/timing/steplog.py", stand_in="a processor raises at once, and goes on")
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
    if os.environ["SUBMITIT_LOCAL_GLOBALID"] == "1":
        ranks.before_step(3, lambda: os.kill(os.getpid(), signal.SIGKILL))


@pytest.mark.timed
@touches(
    "worker/watchdog/thread.py",
    "worker/watchdog/progress.py",
    "worker/faults.py",
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


ROOM_GIB = 4
"""Of the GPU's memory: what another process leaves, so that the batch need not be larger than the host's memory."""

TAKE_THE_REST = f"""
import sys, torch
free, _ = torch.cuda.mem_get_info(0)
rest = torch.empty(max(1, free - {ROOM_GIB} * 2**30), dtype=torch.uint8, device="cuda:0")
print("taken", flush=True)
sys.stdin.read()
"""

ADVICE = re.compile(
    r"rank 0 on node0: memory of GPU 0 \(.+\) ran out: "
    r"[\d.]+ [MG]iB of [\d.]+ [MG]iB were taken(?: and [\d.]+ [MG]iB more requested)?, "
    r"with batch_per_gpu (\d+): (?:(\d+) is the largest power of two that may fit|take a smaller one, such as (\d+))"
)

TRIES = 8


@touches("worker/memory_fit.py", "worker/finish.py", stand_in="images of more than 1 MiB find the GPU full")
def test_memory_that_runs_out(tmp_path: Path, figures: Figures) -> None:
    """end.json says how much there was and which batch may fit; who follows that comes to one that does."""
    batch, tries = ranks.steps(131_072, 4096), 0
    with little_room():
        while True:
            attempt = run_batch(tmp_path / str(batch), batch)
            if attempt.end["state"] == "done":
                break
            assert attempt.end["fault"]["kind"] == "out_of_memory"
            advised = ADVICE.match(attempt.end["reason"])
            assert advised, attempt.end["reason"]
            assert int(advised[1]) == batch
            smaller = int(advised[2] or advised[3])
            assert smaller < batch
            batch, tries = smaller, tries + 1
            assert tries <= TRIES
    assert tries
    attempt.check_done()
    figures.add("batch_that_fits", batch)
    figures.add("tries", tries, most=TRIES)


def run_batch(study: Path, batch: int) -> ranks.Attempt:
    small = {"model": "mnist-cnn", "data": Data(name="synthetic-mnist"), "measure": {"input": "synthetic"}}
    return ranks.run_point(study, ranks.gpu_point(1, batch_per_gpu=batch, warmup=1, steps=2, **small))


@contextlib.contextmanager
def little_room() -> Iterator[None]:
    if not is_real():
        yield
        return
    command = [sys.executable, "-c", TAKE_THE_REST]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout
            assert other.stdout.readline() == "taken\n"
            yield
        finally:
            other.communicate("")


STEPS, STOPPED_IN = 12, 5


def go_on() -> None:
    ranks.same_bits_every_time()


def stop() -> None:
    """The rank is told so in a step, and asks behind each."""
    go_on()
    vars(preemption)["POLL_EVERY_S"] = 0.0
    ranks.before_step(STOPPED_IN, lambda: os.kill(os.getpid(), signal.SIGUSR2))


def at_the_end(attempt: ranks.Attempt) -> list[str]:
    attempt.check_done()
    compared = [gate for gate in attempt.end["gates"] if gate["name"] in ("parameters agree", "buffers agree")]
    return [gate["evidence"].split()[-1] for gate in compared]


@touches(
    "worker/training/resume.py",
    "worker/training/ddp_warmup.py",
    "worker/training/checkpoint.py",
    stand_in="tensors lie in the host's memory; a GPU's random numbers are none",
)
@pytest.mark.parametrize("precision", ["fp32", pytest.param("fp16", marks=pytest.mark.soak)])
def test_a_run_in_two_parts_trains_the_same(tmp_path: Path, precision: str) -> None:
    """Bit for bit, where torch is told to compute the same bits every time: model, optimizer, scaler and random numbers."""
    measure = {"resume": True, "checkpoint_every_min": 0.0}
    point = ranks.gpu_point(precision=precision, warmup=2, steps=STEPS, cudnn_benchmark=False, measure=measure)
    in_one = ranks.run_point(tmp_path / "one", point, before=go_on)
    first = ranks.run_point(tmp_path / "two", point, job="7", before=stop)
    assert first.end["state"] == "interrupted", first.outcomes[0].output
    second = ranks.run_point(tmp_path / "two", point, job="8", before=go_on)
    assert second.launch["resumed"]["step"] == first.end["steps"]
    assert at_the_end(second) == at_the_end(in_one)
