"""What is told of simulated runs against the time that passed in them, by the simulation's own clock: within 0.2 %.

All ranks' exchanges end together; each rank ends its step a little later, by a jitter of its own. Now and then a step is longer:
for all ranks, or because one rank is late and the others wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from hpcddp.analysis.findings import find
from hpcddp.analysis.records.load import load_study

from .synthetic import MS, Told, point, write_run, write_study

SAMPLES = 1_000_000
STEP_NS = 100 * MS
JITTER_NS = 4 * MS

Longer = Callable[[int, int, Random], float]
"""(step, of so many, chance) -> how much longer it is, of a step."""

LONGER: dict[str, Longer] = {
    "even": lambda step, steps, draw: 0.0,
    "noise": lambda step, steps, draw: draw.gauss(0, 0.05),
    "bursts": lambda step, steps, draw: 2.0 if step % 4 == 0 else 0.0,
    "spikes": lambda step, steps, draw: draw.expovariate(0.2) if draw.random() < 0.02 else 0.0,
    "drift": lambda step, steps, draw: 0.3 * step / steps + draw.gauss(0, 0.02),
}


def ends_ns(longer: Longer, steps: int, draw: Random) -> list[int]:
    """When the exchange of each step ends, the first entry when the one before them does."""
    ends = [0]
    for step in range(steps):
        ends.append(ends[-1] + round(STEP_NS * (1 + max(-0.5, longer(step, steps, draw)))))
    return ends


SIZES = {
    1: (1, 1, 400, ()),
    2: (1, 2, 400, (60, 61, 130)),
    16: (4, 4, 400, (60, 61, 130)),
    512: (128, 4, 60, (30,)),
}
"""Ranks -> nodes, GPUs per node, timed steps, and those that come after a pause."""


@pytest.mark.parametrize("ranks", list(SIZES))
@pytest.mark.parametrize("kind", list(LONGER))
def test_rate_epoch_and_node_hours_are_those_of_the_time(tmp_path: Path, kind: str, ranks: int) -> None:
    """Steps after a pause are in neither, and time that passes in a pause is in no step."""
    nodes, gpus, steps, pauses = SIZES[ranks]
    draw, what = Random(f"{kind} {ranks}"), point(nodes, gpus)
    ends = ends_ns(LONGER[kind], steps + 1, draw)
    late = [[draw.randint(0, JITTER_NS) for _ in ends] for _ in range(ranks)]

    def step_ns(rank: int, step: int) -> int:
        return ends[step + 1] + late[rank][step + 1] - ends[step] - late[rank][step]

    study = write_study(tmp_path / "s", [what])
    write_run(study, what, Told(step_ns=step_ns, steps=steps, pauses=pauses, launch={"data": {"samples": SAMPLES}}))
    counted = [step for step in range(1, steps + 1) if step not in pauses]
    passed_s = sum(ends[step + 1] - ends[step] for step in counted) / 1e9
    true_rate = what.global_batch * len(counted) / passed_s
    (row,) = find(load_study(study)).scaling.to_dict("records")
    assert row["samples_per_s"] == pytest.approx(true_rate, rel=0.002)
    assert row["epoch_s"] == pytest.approx(SAMPLES / true_rate, rel=0.002)
    assert row["node_h_per_epoch"] == pytest.approx(nodes * SAMPLES / true_rate / 3600, rel=0.002)
    assert row["step_s"] == pytest.approx(passed_s / len(counted), rel=0.002)
