"""Points of a study that differ in one key alone, side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.analysis.study.by_key import axis_of, by_plain, by_text
from hpcddp.core.errors import UsageError
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import point, write_measured

SIX = (100, 101, 102, 103, 104, 105)


def halved(*step_ms: float) -> list[float]:
    return [each / 2 for each in step_ms]


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """fp32 at two sizes, fp16 at one, twice as fast; and many workers, each with a run."""
    sizes = {point(nodes, 4, precision="fp32"): SIX for nodes in (1, 2)} | {point(2, 4, precision="fp16"): halved(*SIX)}
    workers = {point(4, 4, loader_workers_per_rank=number): (100 + number,) for number in (0, 1, 4, 8, 16)}
    return write_measured(tmp_path / "s", {**sizes, **workers})


def test_a_line_per_size_and_a_column_per_value(study: Study) -> None:
    text = by_text(study, axis_of(study, "workload.precision"))
    head, row = (line.split() for line in text.splitlines()[2:4])
    assert head == ["nodes", "x", "GPUs", "base", "samples/s", "runs", "fp16"]
    assert row[:5] == ["2x4", "fp32", "2,498", "6", "2.00"]
    assert "(95 %" in text
    assert "At 2x4, precision fp16 is 2.00 times" in text
    (base, other) = by_plain(study, axis_of(study, "workload.precision"))["points"]
    assert (base["base"], base["ratio"], other["value"], other["ratio"]) == ("fp32", 1.0, "fp16", pytest.approx(2.0))


def test_one_run_has_no_interval_and_many_values_fit_the_line(study: Study) -> None:
    text = by_text(study, axis_of(study, "workload.loader_workers_per_rank"))
    assert max(map(len, text.splitlines())) <= 100
    assert [line.split()[6:] for line in text.splitlines() if "samples/s" in line] == [["1", "4", "8"], ["16"]]
    assert "%" not in text
    assert "Each value has one run. Set `repeat: 6`" in " ".join(text.split())


def test_a_key_that_no_points_differ_in_has_near_names(study: Study) -> None:
    with pytest.raises(
        UsageError, match=r"s: no points differ in `workload.precison` alone; did you mean `workload.precision`\?"
    ):
        axis_of(study, "workload.precison")
