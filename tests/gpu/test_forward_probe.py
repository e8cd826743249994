"""The forward that is compared over ranks: the same values every time, and nothing on the GPU is changed by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hpcddp.worker.attempt_records import rounding_key
from hpcddp.worker.checksums import VALUES, probe
from hpcddp.worker.gates import ROUNDING
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.training.trainer import apply_settings, make_trainer
from tests.gpu import ranks
from tests.gpu.device import gpu_count
from tests.gpu.marks import touches
from tests.gpu.results import Figures
from tests.worker import given

SHAPE = (1, 28, 28)


def probed_twice(precision: str) -> dict[str, Any]:
    workload = given.workload(precision=precision)
    apply_settings(workload)
    group = join(this_rank("local"), "cuda")
    trainer = make_trainer(workload, given.mnist(64), group.device, group.rank.rank)
    before = torch.cuda.get_rng_state(group.device), torch.backends.cudnn.benchmark
    first, again = (list(probe(trainer, SHAPE).values) for _ in range(2))
    unchanged = torch.equal(before[0], torch.cuda.get_rng_state(group.device)) and before[1] == torch.backends.cudnn.benchmark
    group.leave()
    return {"first": first, "again": again, "unchanged": unchanged}


@touches("hpcddp/worker/attempt_records.py", "hpcddp/worker/checksums.py", stand_in="scores are a processor's")
@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=pytest.mark.soak)])
def test_ranks_and_repetitions_give_the_same(tmp_path: Path, figures: Figures, precision: str) -> None:
    """Within what may be rounding; GPUs of one type give equal bits."""
    found = ranks.values(tmp_path, gpu_count(), probed_twice, precision)
    assert all(each["unchanged"] and len(each["first"]) == VALUES for each in found)
    largest = max(map(abs, found[0]["first"]))
    others = [values for each in found for values in (each["first"], each["again"])]
    apart = max(abs(one - other) for values in others for one, other in zip(values, found[0]["first"], strict=True)) / largest
    figures.add("apart_percent", 100 * apart)
    assert apart <= ROUNDING[rounding_key(given.point(1, device="cuda", precision=precision))]
