"""A batch that grows between epochs: rates are of what each step trained, and longer steps are no finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.core.point import Optimizer
from tests.analysis.report.test_analyze import one
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study

STEPS, SHORT, LONG = (60, 60, 30, 30), 100, 180
"""Of four epochs; milliseconds of a step with 32 and with 64 samples per GPU."""


@pytest.mark.dear
def test_longer_steps_of_a_larger_batch_are_no_stalls(tmp_path: Path) -> None:
    """Three runs of 4 GPUs, steadier than any: the rate counts 128 and 256 samples, and no verdict is about steps."""
    grown = point(1, 4, work="train", epochs=4, optimizer=Optimizer(batch_at_epochs=(2,)), batch_per_gpu=32)
    study, ends = write_study(tmp_path / "s", [grown], 3), [sum(STEPS[: epoch + 1]) for epoch in range(4)]
    batches = [128 if epoch < 2 else 256 for epoch, steps in enumerate(STEPS) for _ in range(steps)]
    times_ms = [10 * SHORT, *(SHORT if batch == 128 else LONG for batch in batches[1:])]
    until_ns = [sum(times_ms[:end]) * MS for end in ends]
    rows = [
        [epoch, end, sum(batches[:end]), time_ns, time_ns, 10**10, batches[end - 1], None, 9, 10, None]
        for epoch, (end, time_ns) in enumerate(zip(ends, until_ns, strict=True), start=1)
    ]
    for run in (1, 2, 3):
        end = {"evaluation": {"samples": 10, "correct": 9, "loss": None}}
        step_ns = lambda rank, step: (SHORT if batches[step] == 128 else LONG) * MS  # noqa: E731
        write_run(study, grown, Recorded(step_ns=step_ns, steps=len(batches) - 1, job=str(run), epochs=rows, end=end), run)
    plain = one(tmp_path).plain
    (row,) = plain["points"]
    samples, time_s = sum(batches[1:]), sum(times_ms[1:]) / 1000
    assert row["samples_per_s"] == pytest.approx(samples / time_s)
    assert row["step_mean_s"] == pytest.approx(time_s / (len(batches) - 1))
    assert (row["step_median_s"], row["step_p99_s"]) == (SHORT / 1000, SHORT / 1000)
    assert {verdict["name"] for verdict in plain["verdicts"]} <= {"baseline missing"}
    assert any("the batch of every row grows" in note for note in plain["notes"])
