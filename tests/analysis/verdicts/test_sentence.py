from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.report.tables import scaling
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.util.wording import percent, quantity, times
from hpcddp.analysis.verdicts.findings import find
from hpcddp.core.point import Point
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_runs, write_study
from tests.analysis.verdict_studies import Model, write

DEMO = {"physical_cores_per_rank": 1, "loader_workers_per_rank": 0}
SOUND = Model(seed=0, layouts=[(1, 1), (2, 1)], steps=120, hook=False)


def sentences_of(folder: Path, steps_ms: dict[tuple[int, int], int]) -> list[str]:
    """The sentences on a study with these layouts and steps, six runs of twenty steps each: nothing is left open."""
    points = [point(*layout) for layout in steps_ms]
    study = write_study(folder, points, repeat=6)
    for each, step_ms in zip(points, steps_ms.values(), strict=True):
        write_runs(study, each, [step_ms * MS] * 6, steps=20)
    return find(load_study(study)).sentences


@pytest.mark.parametrize(
    ("steps_ms", "sentence"),
    [
        ({(1, 1): 32}, "One GPU trains 1 000 samples/s."),
        ({(1, 4): 32}, "4 GPUs train 4 000 samples/s."),
        (
            {(1, 1): 10, (1, 4): 16},
            "4 GPUs train 2.50 times as fast as one GPU, where 4 times would be perfect (62 % efficiency).",
        ),
        ({(1, 1): 10, (2, 1): 10}, "2 nodes with one GPU each train 2.00 times as fast as one GPU (100 % efficiency)."),
        (
            {(1, 1): 10, (2, 1): 25},
            "2 nodes with one GPU each train 0.80 times as fast as one GPU, where 2 times would be perfect (40 % efficiency).",
        ),
        (
            {(1, 1): 10, (1, 2): 16, (1, 4): 31},
            "4 GPUs train hardly faster than 2 GPUs: 1.29 times as fast as one GPU, where 4 times would be perfect "
            "(32 % efficiency).",
        ),
        ({(1, 4): 10, (2, 4): 10, (8, 4): 10}, "8 nodes train 8.00 times as fast as one node (100 % efficiency)."),
        (
            {(1, 1): 10, (1, 4): 10, (4, 2): 10},
            "4 nodes with 2 GPUs each train 8.00 times as fast as one GPU (100 % efficiency)"
            ", and 2.00 times as fast as one node (100 %).",
        ),
    ],
)
def test_the_largest_point_is_told_against_each_baseline_there_is(
    tmp_path: Path, steps_ms: dict[tuple[int, int], int], sentence: str
) -> None:
    """A baseline that is the point itself, or the same as the other one, is left out."""
    assert sentences_of(tmp_path / "s", steps_ms) == [sentence]


def test_a_study_like_the_demos(tmp_path: Path) -> None:
    """One sentence says what came out, what would be perfect, what is in the way, and how sure that is: three runs of 1, 2 and 4
    ranks on two cores.
    """
    points = {point(1, ranks, device="cpu", **DEMO): step_ms for ranks, step_ms in ((1, 40), (2, 50), (4, 100))}
    study = write_study(tmp_path / "s", list(points), repeat=3)
    for each, step_ms in points.items():
        for run, percent_slower in enumerate((0, 1, 2), start=1):
            write_run(study, each, two_cores(each, step_ms * MS * (100 + percent_slower) // 100, run), run)
    assert find(load_study(study)).sentences == [
        "4 ranks train no faster than 2 ranks: about 1.6 times as fast as one rank, where 4 times would be perfect "
        "(40 % efficiency), held back most by too few processor cores; not certain yet: only 3 runs each."
    ]


def two_cores(each: Point, step_ns: int, run: int) -> Recorded:
    """What a rank of the demo records on a machine of two cores that it keeps busy."""
    node = {"host": "r000", "cpu_busy_share": 0.99, "cpu_job_share": 0.98, "cpu_foreign_share": 0.01, "gpus": []}
    return Recorded(
        step_ns=step_ns,
        steps=100,
        job=str(100 + run),
        gpu=None,
        launch={"backend": "local", "profile": {"node_types": {"here": {"physical_cores": 2}}, "default_node_type": "here"}}
        | {"cpus_of_ranks": [2] * each.ranks},
        end={"telemetry": {"hz": 1.0, "nodes": [node]}},
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"repeat": 1}, "; not certain yet: only 1 run each."),
        ({"repeat": 6}, "efficiency)."),
        ({"repeat": 6, "steps": 12}, "; not certain yet: too few timed steps."),
        ({"repeat": 3, "steps": 12}, "; not certain yet: only 3 runs each and too few timed steps."),
        ({"repeat": 6, "foreign": 0.3}, "; not certain yet: other jobs on the nodes."),
        (
            {"repeat": 6, "of_run": lambda each, run: 1 + 0.03 * (run % 3 - 1) if each.ranks == 1 else 1.0},
            "; not certain yet: a baseline whose runs differ.",
        ),
    ],
)
def test_what_a_verdict_leaves_open_is_in_the_same_sentence(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    """With `about` and two digits; nothing of it on a sound study."""
    model = dataclasses.replace(SOUND, **change)
    (sentence,) = find(load_study(write(model, tmp_path / "s"))).sentences
    assert sentence.endswith(says)
    assert sentence.startswith("2 nodes with one GPU each train about 1.9 times as fast" if ";" in says else "2 nodes with one")
    assert ("about" in sentence) == (";" in says)


def test_runs_are_counted_for_each_size(tmp_path: Path) -> None:
    """`each` where all have as many; one that failed leaves five of six."""
    points = [point(1, 1), point(2, 1)]
    study = write_study(tmp_path / "s", points, repeat=6)
    for each, runs in zip(points, (6, 5), strict=True):
        write_runs(study, each, [10 * MS] * runs, steps=20)
    (sentence,) = find(load_study(study)).sentences
    assert sentence.endswith("; not certain yet: as few as 5 runs.")


def test_a_verdict_on_other_points_does_not_touch_the_sentence(tmp_path: Path) -> None:
    """Only the point that is told and its baselines are asked about."""
    points = [point(1, gpus) for gpus in (1, 2, 4)]
    study = write_study(tmp_path / "s", points, repeat=6)
    for each in points:
        write_runs(study, each, [10 * MS] * 6, steps=12 if each.gpus == 2 else 20)
    found = find(load_study(study))
    assert [(verdict.name, verdict.where) for verdict in found.verdicts] == [("too few steps", "at 1x2")]
    assert found.sentences == ["4 GPUs train 4.00 times as fast as one GPU (100 % efficiency)."]


def test_series_of_one_layout_do_not_crowd_the_sentence(tmp_path: Path) -> None:
    """Two sizes with one batch are told; another batch on one size is left to the table."""
    points = [point(1, 1), point(1, 2), point(1, 2, batch_per_gpu=64)]
    study = write_study(tmp_path / "s", points)
    for each in points:
        write_runs(study, each, [MS], steps=20)
    (sentence,) = find(load_study(study)).sentences
    assert sentence == "2 GPUs train about 2.0 times as fast as one GPU (100 % efficiency); not certain yet: only 1 run each."


@pytest.mark.dear
def test_many_series_are_counted(tmp_path: Path) -> None:
    """Four are told, each beginning with what tells it from the others in words; the others are in the table."""
    points = [point(1, gpus, batch_per_gpu=batch) for batch in (1, 2, 4, 8, 16, 32) for gpus in (1, 2)]
    study = write_study(tmp_path / "s", points)
    for each in points:
        write_runs(study, each, [MS])
    sentences = find(load_study(study)).sentences
    begin = "With {} per GPU, 2 GPUs train about 2.0 times as fast as one GPU (100 % efficiency)"
    batches = ("1 sample", "2 samples", "4 samples", "8 samples")
    assert [each.partition(";")[0] for each in sentences[:4]] == [begin.format(batch) for batch in batches]
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


@pytest.mark.parametrize(
    ("shares", "efficiency"),
    [
        ((0.09, 0.09), "(100 % efficiency)"),
        ((0.0, 0.33), "(100 % efficiency, while ranks wait for data for 33 % of the step)"),
        ((0.4, 0.33), "(100 % efficiency, while ranks wait for data for 33 % of the step, one GPU for 40 %)"),
        ((0.4, 0.0), "(100 % efficiency, relative to a baseline that waits for data: one GPU for 40 % of the step)"),
    ],
)
def test_a_starved_loop_is_not_efficient_without_a_word(tmp_path: Path, shares: tuple[float, float], efficiency: str) -> None:
    """From a tenth of the step on, of the point or of what it is compared with; so in the table's row and its foot."""
    points = [point(1, 1), point(1, 2)]
    study = write_study(tmp_path / "s", points)
    for each, share in zip(points, shares, strict=True):
        write_run(study, each, Recorded(step_ns=10 * MS, steps=20, shares={"data_wait": share, "forward": 0.5}))
    found = find(load_study(study))
    assert efficiency in found.sentences[0]
    table = scaling(found.shown, found.shown_apart)
    column = [row[i].text for i, head in enumerate(table.columns) if head.head == "waits for data" for row in table.rows]
    assert column == ([f"{100 * share:.0f} %" for share in shares] if max(shares) >= 0.1 else [])
    assert ("Ranks wait for data for" in table.note) == bool(column)
    assert ("those of a baseline among them" in table.note) == (shares[0] >= 0.1)
