"""What a study of keys leads with: its heading, its first table, and what it does not say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from hpcddp.analysis import analyze
from hpcddp.analysis.report.tables import study_tables
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import Findings, find
from hpcddp.core.point import Point
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import MS, START_NS, Recorded, point, write_run, write_runs, write_study

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
def test_the_best_of_nine_values_is_the_heading(tmp_path: Path) -> None:
    """Against the default; nothing is said of scaling, and the first table is that of the effect."""
    study = write_rates(tmp_path / "s", {workers(number): rate for number, rate in NINE.items()})
    of_nine = find(load_study(study))
    assert of_nine.sentences[0].startswith("Best: workers 8 trains 60")
    assert " samples/s, 1.8" in of_nine.sentences[0]
    assert of_nine.sentences[0].endswith(" as fast as workers 2 (the default).")
    assert "larger values are slower: 16 is 0.9" in of_nine.sentences[1]
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
    """Then nothing is compared with itself."""
    rates = {workers(number): rate for number, rate in {1: 300, 2: 400, 4: 350}.items()}
    assert found(tmp_path, rates).sentences[0] in (
        "Best: workers 2 (the default) trains 400 samples/s; no other value is faster.",
        "Best: workers 2 (the default) trains 401 samples/s; no other value is faster.",
        "Best: workers 2 (the default) trains 399 samples/s; no other value is faster.",
    )


def test_a_default_that_happens_to_be_fastest_is_not_compared_with_itself(tmp_path: Path) -> None:
    """Where no value has an effect, too."""
    study = write_study(tmp_path / "s", [workers(number) for number in (1, 2)], 3)
    for number in (1, 2):
        write_runs(study, workers(number), [100 * MS + run * MS + (2 - number) * MS // 100 for run in range(3)], steps=20)
    (heading, *_) = find(load_study(study)).sentences
    assert heading.startswith(
        "No measurable effect of workers: workers 2 (the default) trains 317 samples/s; no other value is faster"
    )


@pytest.mark.dear
@pytest.mark.parametrize("runs", [3, 6])
def test_twelve_values_that_do_nothing_have_no_effect(tmp_path: Path, runs: int) -> None:
    """And no interval beside that excludes it."""
    of_twelve = found(tmp_path, {workers(number): 300 for number in range(12)}, runs)
    assert of_twelve.sentences[0].startswith("No measurable effect of workers: workers 2 (the default) trains 30")
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
    assert said[0].startswith("Best: batch/GPU 64, workers 8 trains 5")
    assert said[0].endswith(" as fast as batch/GPU 32, workers 1 (the base).")
    (depends,) = [sentence for sentence in said if "depend on each other" in sentence]
    assert depends.startswith("With workers 8, batch/GPU 64 is 1.4")
    assert " times as fast as 32; with workers 1 it is 1.0" in depends
    assert not any("depend on each other" in sentence for sentence in unsaid)


@pytest.mark.dear
def test_runs_in_blocks_claim_nothing_for_sure(tmp_path: Path) -> None:
    """Drift of the machine looks like an effect there; of runs in turn it does not."""
    rates = {workers(number): 300 for number in (1, 2, 4, 8)}
    of_blocks, interleaved = (found(tmp_path / str(blocks), rates, blocks=blocks, drift=0.06) for blocks in (True, False))
    assert of_blocks.sentences[0].startswith("Fastest in these runs: workers 1 trains ")
    assert "; not certain: values were measured one after the other, and drift of the machine" in of_blocks.sentences[0]
    assert "not certain: all runs of workers 8 started after all runs of workers 1, and drift of" in of_blocks.sentences[1]
    assert of_blocks.sentences[1].endswith("each value then has its first run before any has its second.")
    assert not any(panel.is_sure for axis in of_blocks.effects for panel in axis.panels)
    assert interleaved.sentences[0].startswith("No measurable effect of workers")
    assert not any("drift" in sentence for sentence in interleaved.sentences)


def test_one_run_of_each_says_so(tmp_path: Path) -> None:
    """The fastest is named, and nothing claimed."""
    (heading, *_) = found(tmp_path, {workers(1): 200, workers(2): 300}, runs=1).sentences
    assert heading.startswith("Fastest in these runs: workers 2 (the default) trains ")
    assert heading.endswith(", with one run each. Set `repeat: 6` to see whether this is more than chance.")
