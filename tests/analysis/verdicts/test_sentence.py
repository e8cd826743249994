"""The sentences that a report begins with."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcddp.analysis import analyze
from hpcddp.analysis.report.tables import scaling, study_tables
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.util.wording import percent, quantity, times
from hpcddp.analysis.verdicts.findings import Findings, find
from hpcddp.core.point import Point
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import MS, START_NS, Recorded, point, write_run, write_runs, write_study
from tests.analysis.verdict_studies import Model, measured, write

DEMO = {"physical_cores_per_rank": 1, "loader_workers_per_rank": 0}
PLAIN = Model(seed=0, layouts=[(1, 1), (2, 1)], steps=120, hook=False)


def sentences_of(folder: Path, steps_ms: dict[tuple[int, int], int]) -> list[str]:
    """The sentences on a study with these layouts and steps, six runs of twenty steps each: nothing is left open."""
    study = measured(folder, {point(*layout): [step_ms] * 6 for layout, step_ms in steps_ms.items()}, steps=20)
    return find(load_study(study)).sentences


@pytest.mark.parametrize(
    ("steps_ms", "sentence"),
    [
        ({(1, 1): 32}, "One GPU trains 1,000 samples/s."),
        ({(1, 4): 32}, "4 GPUs train 4,000 samples/s."),
        ({(1, 1): 10, (1, 4): 16}, "4 GPUs train 2.50 times as fast as one GPU (62 % efficiency). Perfect scaling would be 4"),
        ({(1, 1): 10, (2, 1): 10}, "2 nodes with one GPU each train 2.00 times as fast as one GPU (100 % efficiency)."),
        ({(1, 1): 10, (2, 1): 25}, "2 nodes with one GPU each train 0.80 times as fast as one GPU (40 % efficiency)."),
        (
            {(1, 1): 10, (1, 2): 16, (1, 4): 31},
            "4 GPUs train hardly faster than 2 GPUs. They train 1.29 times as fast as one GPU",
        ),
        ({(1, 4): 10, (2, 4): 10, (8, 4): 10}, "8 nodes train 8.00 times as fast as one node (100 % efficiency)."),
        (
            {(1, 1): 10, (1, 4): 10, (4, 2): 10},
            "4 nodes with 2 GPUs each train 8.00 times as fast as one GPU (100 % efficiency). "
            "They train 2.00 times as fast as one node (100 % efficiency).",
        ),
    ],
)
def test_the_largest_point_is_told_against_each_baseline_there_is(
    tmp_path: Path, steps_ms: dict[tuple[int, int], int], sentence: str
) -> None:
    (found,) = sentences_of(tmp_path / "s", steps_ms)
    assert found.startswith(sentence)


def test_a_study_like_the_demos(tmp_path: Path) -> None:
    """What came out, what would be perfect, what is in the way, and how sure that is: 1, 2 and 4 ranks on two busy cores."""
    points = {point(1, ranks, device="cpu", **DEMO): step_ms for ranks, step_ms in ((1, 40), (2, 50), (4, 100))}
    study = write_study(tmp_path / "s", list(points), repeat=3)
    node = {"host": "r000", "cpu_busy_share": 0.99, "cpu_job_share": 0.98, "cpu_foreign_share": 0.01, "gpus": []}
    profile = {"node_types": {"here": {"physical_cores": 2}}, "default_node_type": "here"}
    for each, step_ms in points.items():
        launch = {"backend": "local", "profile": profile, "cpus_of_ranks": [2] * each.ranks}
        of_runs = {"steps": 100, "gpu": None, "launch": launch, "end": {"telemetry": {"hz": 1.0, "nodes": [node]}}}
        write_runs(study, each, [step_ms * MS * (100 + slower) // 100 for slower in (0, 1, 2)], **of_runs)
    assert find(load_study(study)).sentences == [
        "4 ranks train no faster than 2 ranks. They train about 1.6 times as fast as one rank (40 % efficiency). Perfect scaling "
        "would be 4 times. The main limit is too few processor cores. This is not certain yet: only 3 runs each."
    ]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"repeat": 1}, " This is not certain yet: only 1 run each."),
        ({"repeat": 6}, "efficiency)."),
        ({"repeat": 6, "steps": 12}, " This is not certain yet: too few timed steps."),
        ({"repeat": 3, "steps": 12}, " This is not certain yet: only 3 runs each and too few timed steps."),
        ({"repeat": 6, "foreign": 0.3}, " This is not certain yet: other jobs on the nodes."),
        (
            {"repeat": 6, "of_run": lambda each, run: 1 + 0.03 * (run % 3 - 1) if each.ranks == 1 else 1.0},
            " This is not certain yet: a baseline whose runs differ.",
        ),
    ],
)
def test_what_a_verdict_leaves_open_is_in_the_same_sentence(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    model = dataclasses.replace(PLAIN, **change)
    (sentence,) = find(load_study(write(model, tmp_path / "s"))).sentences
    assert sentence.endswith(says)
    assert sentence.startswith("2 nodes with one GPU each train about 1.9 times as fast" if "yet" in says else "2 nodes with one")
    assert ("about" in sentence) == ("yet" in says)


def test_runs_are_counted_for_each_size(tmp_path: Path) -> None:
    study = measured(tmp_path / "s", {point(1, 1): [10] * 6, point(2, 1): [10] * 5}, steps=20)
    (sentence,) = find(load_study(study)).sentences
    assert sentence.endswith(" This is not certain yet: as few as 5 runs.")


def test_a_verdict_on_other_points_does_not_touch_the_sentence(tmp_path: Path) -> None:
    points = [point(1, gpus) for gpus in (1, 2, 4)]
    study = write_study(tmp_path / "s", points, repeat=6)
    for each in points:
        write_runs(study, each, [10 * MS] * 6, steps=12 if each.gpus == 2 else 20)
    found = find(load_study(study))
    assert [(verdict.name, verdict.where) for verdict in found.verdicts] == [("too few steps", "at 1x2")]
    assert found.sentences == ["4 GPUs train 4.00 times as fast as one GPU (100 % efficiency)."]


def test_series_of_one_layout_do_not_crowd_the_sentence(tmp_path: Path) -> None:
    points = [point(1, 1), point(1, 2), point(1, 2, batch_per_gpu=64)]
    (sentence,) = find(load_study(measured(tmp_path / "s", dict.fromkeys(points, (1,)), steps=20))).sentences
    assert sentence.startswith("2 GPUs train about 2.0 times as fast as one GPU (100 % efficiency).")


@pytest.mark.dear
def test_many_series_are_counted(tmp_path: Path) -> None:
    points = [point(1, gpus, batch_per_gpu=batch) for batch in (1, 2, 4, 8, 16, 32) for gpus in (1, 2)]
    sentences = find(load_study(measured(tmp_path / "s", dict.fromkeys(points, (1,))))).sentences
    begin = "2 GPUs ({} per GPU) train about 2.0 times as fast as one GPU (100 % efficiency)"
    batches = ("1 sample", "2 samples", "4 samples", "8 samples")
    assert [each.partition(". ")[0] for each in sentences[:4]] == [begin.format(batch) for batch in batches]
    assert sentences[4:] == ["The table has 2 more series."]


LONG = "a-model-with-a-name-that-nobody-would-type-twice"


@pytest.mark.parametrize(
    ("rates", "heading"),
    [
        ({(1, 1): 100, (1, 4): 250}, "4 GPUs train 2.49 times as fast as one: 62 % efficiency"),
        ({(1, 1): 100, (1, 2): 125, (1, 4): 129}, "4 GPUs train hardly faster than 2 GPUs: 32 % efficiency"),
        ({(2, 1): 190, (1, 1): 100, (8, 1): 190}, "8 GPUs train 1.90 times as fast as one: 24 % efficiency"),
        ({(1, 4): 100, (2, 4): 150}, "2 nodes train 1.50 times as fast as one: 75 % efficiency"),
        ({(2, 4): 100}, "2 nodes train 100 samples/s"),
        (
            {(1, 1): 100, (1, 4): 360, (1, 1, 64): 100, (1, 4, 64): 200},
            "91 % efficiency with batch/GPU 32; 50 % with batch/GPU 64",
        ),
        (
            {(1, 1): 9, (1, 4): 36, (1, 1, LONG): 9, (1, 4, LONG): 18, (1, 1, 64): 9, (1, 4, 64): 9},
            "3 series: 25 % to 100 % efficiency on 4 GPUs",
        ),
        ({(1, 4): 100, (1, 4, 64): 150}, "Best: batch/GPU 64, 1.50 times the default's rate"),
        ({(1, 4): 150, (1, 4, 64): 100}, "Best: batch/GPU 32, the default"),
        ({(1, 4): 100, (1, 4, 64): 100}, "No measurable effect of batch/GPU"),
    ],
)
def test_a_heading_has_at_most_twelve_words(tmp_path: Path, rates: Mapping[tuple[Any, ...], float], heading: str) -> None:
    """Of each kind of study; where all words of it are too many, it says less."""

    def place(nodes: int, gpus: int, series: int | str = 32) -> Point:
        return point(nodes, gpus, **{"model": series} if isinstance(series, str) else {"batch_per_gpu": series})

    found = find(load_study(write_rates(tmp_path / "s", {place(*each): rate for each, rate in rates.items()})))
    assert found.heading == heading
    assert len(found.heading.split()) <= 12


def test_numbers_have_the_digits_that_count() -> None:
    values = (0, 0.01234, 1.0, 78.94, 370, 1180.4, 2_500_000)
    assert [quantity(each) for each in values] == ["0", "0.0123", "1.00", "78.9", "370", "1,180", "2,500,000"]
    assert [times(each) for each in (1.8, 9.99, 9.996, 24.93)] == ["1.80", "9.99", "10.0", "24.9"]
    assert percent(0.866) == "87 %"


@pytest.mark.parametrize(
    ("shares", "efficiency"),
    [
        ((0.09, 0.09), "(100 % efficiency)"),
        ((0.0, 0.33), "(100 % efficiency). Ranks wait for data during 33 % of the step."),
        ((0.4, 0.33), "(100 % efficiency). Ranks wait for data during 33 % of the step, with one GPU during 40 %."),
        ((0.4, 0.0), "(100 % efficiency). The baseline waits for data: one GPU during 40 % of the step."),
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


NINE = dict(zip((0, 1, 2, 3, 4, 6, 8, 12, 16), (235, 260, 330, 400, 470, 560, 604, 580, 570), strict=True))
"""Loader workers -> samples per second."""


def workers(number: int, **changes: object) -> Point:
    return point(1, 1, loader_workers_per_rank=number, **changes)


def write_rates(folder: Path, rates: Mapping[Point, float], runs: int = 6, *, blocks: bool = False, drift: float = 0.0) -> Study:
    """Runs that differ by 0.5 %, in turn or value after value, on a machine that gets slower by `drift` over the study."""
    study, draw = write_study(folder, list(rates), runs), np.random.default_rng(len(rates))
    order = [(each, run) for run in range(1, runs + 1) for each in rates]
    for i, (each, run) in enumerate(sorted(order, key=lambda pair: list(rates).index(pair[0])) if blocks else order):
        rate = rates[each] * (1 + 0.005 * draw.standard_normal()) * (1 - drift * i / len(order))
        launch = {"started_unix_ns": START_NS + i * 60_000_000_000}
        step_ns = round(1e9 * each.global_batch / rate)
        write_run(study, each, Recorded(step_ns=step_ns, steps=20, job=str(100 + run), launch=launch), run)
    return study


def found(folder: Path, rates: Mapping[Point, float], runs: int = 6, *, blocks: bool = False, drift: float = 0.0) -> Findings:
    return find(load_study(write_rates(folder / "s", rates, runs, blocks=blocks, drift=drift)))


@pytest.mark.dear
@pytest.mark.usefixtures("undrawn")
def test_the_best_of_nine_values_is_the_heading(tmp_path: Path) -> None:
    study = write_rates(tmp_path / "s", {workers(number): rate for number, rate in NINE.items()})
    of_nine = find(load_study(study))
    assert of_nine.sentences[0].startswith("Best: workers 8 with 60")
    assert " samples/s, 1.8" in of_nine.sentences[0]
    assert of_nine.sentences[0].endswith(" that of workers 2 (the default).")
    assert "Larger values are slower: 16 is 0.9" in of_nine.sentences[1]
    assert of_nine.verdicts == []
    assert next(iter(study_tables(of_nine))) == "effect_loader_workers_per_rank"
    (result,) = analyze(study.folder)
    assert result.text.splitlines()[0] == "s: effect of workers on one GPU"
    for file in ("index.html", "report.md"):
        text = (study.folder / "report" / file).read_text().partition("How this was measured")[0]
        assert text.index("Best: workers 8") < text.index("Effect of workers") < text.index("Throughput")
        assert "weak scaling" not in text
        assert "100 %" not in text
        assert "speedup" not in text.lower().replace("speedups", "")


def test_the_default_may_be_best(tmp_path: Path) -> None:
    rates = {workers(number): rate for number, rate in {1: 300, 2: 400, 4: 350}.items()}
    sentence = found(tmp_path, rates).sentences[0]
    assert re.fullmatch(r"Best: workers 2 \(the default\) with (399|400|401) samples/s\. No other value is faster\.", sentence)


def test_a_default_that_happens_to_be_fastest_is_not_compared_with_itself(tmp_path: Path) -> None:
    times = {workers(1): [100.01, 101.01, 102.01], workers(2): [100.0, 101.0, 102.0]}
    (heading, *_) = find(load_study(measured(tmp_path / "s", times, steps=20))).sentences
    assert heading.startswith("No effect of workers on training is measurable. The rate is 317 samples/s with workers 2")


@pytest.mark.dear
@pytest.mark.parametrize("runs", [3, 6])
def test_twelve_values_that_do_nothing_have_no_effect(tmp_path: Path, runs: int) -> None:
    of_twelve = found(tmp_path, {workers(number): 300 for number in range(12)}, runs)
    assert of_twelve.sentences[0].startswith("No effect of workers on training is measurable. The rate is 30")
    assert "At 1x1, workers has no measurable effect: throughput is " in of_twelve.sentences[1]
    (panel,) = of_twelve.effects[0].panels
    ratios = [against for value in panel.values if (against := panel.against_base(value))]
    assert all(each.low is not None and each.high is not None and each.low <= 1 <= each.high for each in ratios)


@pytest.mark.dear
def test_two_keys_that_depend_on_each_other_are_said_to(tmp_path: Path) -> None:
    """With the best of all points; keys whose effects multiply do not."""
    interacting = {(1, 32): 300, (1, 64): 306, (8, 32): 400, (8, 64): 560}
    multiplying = {(1, 32): 300, (1, 64): 330, (8, 32): 400, (8, 64): 440}
    said, unsaid = (
        found(tmp_path / name, {workers(number, batch_per_gpu=batch): rate for (number, batch), rate in rates.items()}).sentences
        for name, rates in (("a", interacting), ("b", multiplying))
    )
    assert said[0].startswith("Best: batch/GPU 64, workers 8 with 5")
    assert said[0].endswith(" that of batch/GPU 32, workers 1 (the base).")
    (depends,) = [sentence for sentence in said if "depend on each other" in sentence]
    assert depends.startswith("At 1x1, batch/GPU 64 is 1.4")
    assert " times as fast as 32 with workers 8, and 1.0" in depends
    assert not any("depend on each other" in sentence for sentence in unsaid)


@pytest.mark.dear
def test_runs_in_blocks_claim_nothing_for_sure(tmp_path: Path) -> None:
    """Drift of the machine looks like an effect there; of runs in turn it does not."""
    rates = {workers(number): 300 for number in (1, 2, 4, 8)}
    of_blocks, interleaved = (found(tmp_path / str(blocks), rates, blocks=blocks, drift=0.06) for blocks in (True, False))
    assert of_blocks.sentences[0].startswith("Fastest in these runs: workers 1 with ")
    assert "each value had its runs in a row, and drift of the machine" in of_blocks.sentences[0]
    assert "not certain. All runs of workers 8 started after all runs of workers 1, and drift of" in of_blocks.sentences[1]
    assert of_blocks.sentences[1].endswith("each value then has its first run before any has its second.")
    assert not any(panel.is_sure for axis in of_blocks.effects for panel in axis.panels)
    assert interleaved.sentences[0].startswith("No effect of workers")
    assert not any("drift" in sentence for sentence in interleaved.sentences)


def test_one_run_of_each_says_so(tmp_path: Path) -> None:
    (heading, *_) = found(tmp_path, {workers(1): 200, workers(2): 300}, runs=1).sentences
    assert heading.startswith("Fastest in these runs: workers 2 (the default) with ")
    assert heading.endswith(" Each value has one run. Set `repeat: 6` to see whether this is more than chance.")


@pytest.mark.parametrize(
    ("wait", "end"),
    [
        (0.6, "during 60 % of the step, with one GPU during 60 %. The main limit is waiting for data"),
        (0.0, "(50 % efficiency). Perfect scaling would be 2 times"),
    ],
)
def test_the_sentence_says_why(tmp_path: Path, wait: float, end: str) -> None:
    shares = {"data_wait": wait, "forward": 0.3}
    study = measured(tmp_path / "s", {point(1, 1): [16], point(1, 2): [32]}, steps=20, shares=shares)
    assert find(load_study(study)).sentences[0].partition(". This is not certain")[0].endswith(end)
