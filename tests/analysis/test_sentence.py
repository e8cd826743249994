from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.analysis.findings import find
from hpcddp.analysis.load import load_study
from hpcddp.analysis.wording import percent, quantity, times

from .synthetic import MS, point, write_runs, write_study


def told(folder: Path, steps_ms: dict[tuple[int, int], int]) -> list[str]:
    """The sentences on a study with these layouts and steps."""
    points = [point(*layout) for layout in steps_ms]
    study = write_study(folder, points)
    for each, step_ms in zip(points, steps_ms.values(), strict=True):
        write_runs(study, each, [step_ms * MS])
    return find(load_study(study)).sentences


@pytest.mark.parametrize(
    ("steps_ms", "sentence"),
    [
        ({(1, 1): 32}, "One GPU trains 1 000 samples/s."),
        ({(1, 4): 32}, "4 GPUs train 4 000 samples/s."),
        ({(1, 1): 10, (1, 4): 16}, "4 GPUs train 2.50 times as fast as one GPU (62 % efficiency)."),
        ({(1, 1): 10, (2, 1): 10}, "2 nodes with one GPU each train 2.00 times as fast as one GPU (100 % efficiency)."),
        ({(1, 1): 10, (2, 1): 25}, "2 nodes with one GPU each train 0.80 times as fast as one GPU (40 % efficiency)."),
        ({(1, 4): 10, (2, 4): 10, (8, 4): 10}, "8 nodes train 8.00 times as fast as one node (100 % efficiency)."),
        (
            {(1, 1): 10, (1, 4): 10, (4, 2): 10},
            "4 nodes with 2 GPUs each train 8.00 times as fast as one GPU (100 % efficiency)"
            " and 2.00 times as fast as one node (100 %).",
        ),
    ],
)
def test_the_largest_point_is_told_against_each_baseline_there_is(
    tmp_path: Path, steps_ms: dict[tuple[int, int], int], sentence: str
) -> None:
    """A baseline that is the point itself, or the same as the other one, is left out."""
    assert told(tmp_path / "s", steps_ms) == [sentence]


def test_series_of_one_layout_do_not_crowd_the_sentence(tmp_path: Path) -> None:
    """Two sizes with one batch are told; another batch on one size is left to the table."""
    points = [point(1, 1), point(1, 2), point(1, 2, batch_per_gpu=64)]
    study = write_study(tmp_path / "s", points)
    for each in points:
        write_runs(study, each, [MS])
    assert find(load_study(study)).sentences == ["2 GPUs train 2.00 times as fast as one GPU (100 % efficiency)."]


def test_many_series_are_counted(tmp_path: Path) -> None:
    """Four are told by name, the others are in the table."""
    points = [point(1, gpus, batch_per_gpu=batch) for batch in (1, 2, 4, 8, 16, 32) for gpus in (1, 2)]
    study = write_study(tmp_path / "s", points)
    for each in points:
        write_runs(study, each, [MS])
    sentences = find(load_study(study)).sentences
    assert [sentence.split(":")[0] for sentence in sentences[:4]] == [f"batch/GPU {batch}" for batch in (1, 2, 4, 8)]
    assert sentences[4:] == ["2 more series: see the table."]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.01234, "0.0123"), (1.0, "1.00"), (78.94, "78.9"), (370, "370"), (1180.4, "1 180"), (2_500_000, "2 500 000")],
)
def test_quantities_have_the_digits_that_count(value: float, text: str) -> None:
    """Three digits, or all before the point; thousands apart."""
    assert quantity(value) == text


@pytest.mark.parametrize(("value", "text"), [(1.8, "1.80"), (9.99, "9.99"), (9.996, "10.0"), (24.93, "24.9")])
def test_speedups_have_three_digits(value: float, text: str) -> None:
    """Also where rounding adds one."""
    assert times(value) == text


def test_shares_are_whole_percent() -> None:
    """0.866 is 87 %."""
    assert percent(0.866) == "87 %"
