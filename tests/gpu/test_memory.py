"""A batch that no GPU holds."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from hpcddp.core.point import Data
from tests.gpu import ranks
from tests.gpu.device import is_real
from tests.gpu.marks import touches
from tests.gpu.results import Figures

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
    r"[\d.]+ [MG]iB of [\d.]+ [MG]iB were taken(?: and [\d.]+ [MG]iB more asked for)?, "
    r"with batch_per_gpu (\d+): (?:(\d+) is the largest power of two that may fit|take a smaller one, such as (\d+))"
)

TRIES = 8


@touches("hpcddp/worker/memory_fit.py", "hpcddp/worker/finish.py", stand_in="images of more than 1 MiB find the GPU full")
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
    """Another process has the rest of the GPU's memory."""
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
