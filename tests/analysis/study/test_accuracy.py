"""Accuracy and loss of runs and points: exact counts, what they were trained for, and nothing ranked that trained otherwise."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hpcddp.analysis.report.result import StudyResult
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.accuracy import Evaluated, gap, same_training
from hpcddp.analysis.study.load import load_study
from hpcddp.core.point import Point
from hpcddp.core.records import steps_file
from hpcddp.core.run_root import Study
from tests.analysis.records.test_impossible import plant
from tests.analysis.report.test_analyze import one
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study

E9 = 10**9


def falling(rank: int, step: int) -> int:
    """10, 9.9, 9.8 ... on rank 0; each rank 0.2 above the one before."""
    return 10 * E9 - step * E9 // 10 + rank * E9 // 5


def study(folder: Path, correct: Mapping[Point, Sequence[int | None]], hold: str = "global_batch", **changes: Any) -> Study:
    """A run per count of 10,000; None: it was not evaluated."""
    made = write_study(folder, list(correct), max(map(len, correct.values())), hold=hold)
    for of, counts in correct.items():
        for run, count in enumerate(counts, start=1):
            end = {"evaluation": None if count is None else {"samples": 10_000, "correct": count, "loss": 0.1}}
            write_run(made, of, Recorded(step_ns=100 * MS // of.gpus, job=str(run), end=end, **{"steps": 29, **changes}), run)
    return made


def sized(gpus: int, **changes: Any) -> Point:
    """64 samples a step, whatever the size."""
    return point(1, gpus, evaluate=True, batch_per_gpu=64 // gpus, **changes)


def run_with(tmp_path: Path, **changes: Any) -> Run:
    made = study(tmp_path / "s", {sized(2): [9_722]}, **changes)
    (run,) = load_study(made).runs
    return run


def points_of(result: StudyResult) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = result.plain["points"]
    return found


def test_a_loss_is_the_mean_over_ten_steps_and_all_ranks(tmp_path: Path) -> None:
    """Steps 0 to 9 of rank 0 have 9.55 in the mean, of rank 1 0.2 more; steps 20 to 29 have 2 less. The warm-up is among them."""
    run = run_with(tmp_path, loss=falling)
    assert run.losses is not None
    assert [run.losses.start, run.losses.end, run.losses.steps] == pytest.approx([9.65, 7.65, 10])
    assert (run.samples_trained, run.eval_loss) == (30 * 64, 0.1)


def test_rows_without_losses_leave_the_first_and_the_last_step(tmp_path: Path) -> None:
    """As end.json has them, of a single step each."""
    run = run_with(tmp_path)
    assert run.losses is not None
    assert (run.losses.start, run.losses.end, run.losses.steps) == (2.5, 0.5, 1)


def test_a_loss_that_is_not_known_leaves_its_end_unknown(tmp_path: Path) -> None:
    """Rank 1's was not finite in step 25."""
    run = run_with(tmp_path, loss=lambda rank, step: None if (rank, step) == (1, 25) else falling(rank, step))
    assert run.losses is not None
    assert run.losses.start == pytest.approx(9.65)
    assert run.losses.end is None


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (-1, "step 3 has loss_e9 -1: no cross entropy"),
        (10**15, "step 3 has loss_e9"),
        ("low", "cannot be read"),
        ("1e400", "3 has"),
    ],
)
def test_a_damaged_loss_rejects_its_run(tmp_path: Path, cell: int | str, reason: str) -> None:
    """Under a checksum that holds."""
    made = study(tmp_path / "s", {sized(2): [9_722]}, loss=falling)
    plant(next(steps.parents[1] for steps in made.folder.rglob("00001.steps.csv")), "loss_e9", cell)
    (run,) = load_study(made).runs
    assert run.state == "rejected"
    assert reason in str(run.reason)


def test_rows_that_lack_their_losses_reject(tmp_path: Path) -> None:
    """launch.json says that they have them."""
    made = study(tmp_path / "s", {sized(1): [9_722]}, loss=falling)
    attempt = made.attempt_dir(sized(1).label, 1, "1", 0)
    file = steps_file(attempt, 0)
    file.write_text(file.read_text().replace("loss_e9", "lost_e9", 1))
    end = json.loads((attempt / "end.json").read_text())
    end["ranks"][0]["crc32"] = zlib.crc32(file.read_bytes())
    (attempt / "end.json").write_text(json.dumps(end))
    assert "cannot be read" in str(load_study(made).runs[0].reason)


@pytest.mark.parametrize(
    "evaluation", [{"samples": 9, "correct": 10}, {"correct": 1}, {"samples": 9, "correct": 1, "loss": -0.1}]
)
def test_an_evaluation_that_cannot_be_rejects_its_run(tmp_path: Path, evaluation: dict[str, Any]) -> None:
    """More right than there are; a loss below 0."""
    made = write_study(tmp_path / "s", [sized(1)])
    write_run(made, sized(1), Recorded(step_ns=MS, end={"evaluation": evaluation}))
    (run,) = load_study(made).runs
    assert run.state == "rejected"
    assert "end.json: evaluation." in str(run.reason)


@pytest.mark.dear
def test_accuracy_is_a_median_with_its_exact_count(tmp_path: Path) -> None:
    """Of three runs the middle one's; of two half a sample."""
    study(tmp_path / "s", {sized(1): [9_700, 9_722, 9_710], sized(2): [9_600, 9_601]}, loss=falling)
    result = one(tmp_path)
    first, second = points_of(result)
    assert (first["accuracy"], first["eval_correct"], first["eval_samples"], first["eval_n"]) == (0.971, 9_710, 10_000, 3)
    assert (first["accuracy_low"], first["accuracy_high"], first["accuracy_interval"]) == (0.97, 0.9722, "range")
    assert (second["eval_correct"], second["samples_trained"], second["samples_trained_most"]) == (9_600.5, 1_920, None)
    for text in ("97.10 % (9,710 of 10,000) (97.00-97.22)", "96.00 % (9,600.5 of 10,000) (96.00-96.01)"):
        assert text in result.text
    table = (tmp_path / "s/report/accuracy.tex").read_text()
    assert "9,710 of 10,000" in table
    last = list(pd.read_csv(tmp_path / "s/report/scaling.csv"))[-14:]
    assert last[0] == "eval_n"
    assert last[-1] == "loss_steps"


@pytest.mark.dear
def test_the_sentence_ranks_points_that_trained_equally_much(tmp_path: Path) -> None:
    """By the interval over six runs, for which both medians are drawn."""
    study(
        tmp_path / "s", {sized(1): [9_720 + run for run in range(6)], sized(2): [9_680 + run for run in range(6)]}, loss=falling
    )
    sentence = one(tmp_path).plain["sentences"][-1]
    assert sentence.startswith("Accuracy after 1,920 samples is 97.22 % (9,722.5 of 10,000) with one GPU and 96.83 % (9,682.5 of")
    assert "0.40 points lower (95 % -0.4" in sentence
    assert "loss went from 9.65 to 7.65 (means of its first and last 10 steps)" in sentence


@pytest.mark.dear
def test_no_difference_is_said_to_be_none(tmp_path: Path) -> None:
    """The interval holds 0."""
    study(tmp_path / "s", {sized(1): [9_700, 9_720, 9_740] * 2, sized(2): [9_701, 9_721, 9_739] * 2})
    assert "no difference found (95 % -0." in one(tmp_path).plain["sentences"][-1]


@pytest.mark.dear
def test_points_that_trained_unlike_amounts_are_not_ranked(tmp_path: Path) -> None:
    """Four GPUs train four times the samples in as many steps."""
    study(tmp_path / "s", {point(1, gpus, evaluate=True): [9_000 + gpus] * 6 for gpus in (1, 4)}, hold="batch_per_gpu")
    sentence = one(tmp_path).plain["sentences"][-1]
    assert "90.01 % (9,001 of 10,000) after 960 samples with one GPU" in sentence
    assert "not ranked, as they trained unlike amounts" in sentence
    assert not any(word in sentence for word in ("lower", "higher", "no difference"))


@pytest.mark.dear
def test_a_study_of_keys_has_its_least_and_its_most_accurate_value(tmp_path: Path) -> None:
    """Not the first value's accuracy as if it were that of all."""
    counts = {sized(4, loader_workers_per_rank=workers): [n] for workers, n in ((1, 9_500), (2, 1_000), (4, 9_600))}
    least, most = [text for text in one(study(tmp_path / "s", counts).folder).plain["sentences"] if "Accuracy" in text]
    assert least.startswith("Accuracy (workers 2, the lowest of 3) is 10.00 % (1,000 of 10,000)")
    assert most.startswith("Accuracy (workers 4, the highest of 3) is 96.00 % (9,600 of 10,000)")


@pytest.mark.dear
def test_without_an_evaluation_nothing_is_said_of_accuracy(tmp_path: Path) -> None:
    """Losses alone are on the page and in the files, under their own name."""
    study(tmp_path / "s", {point(1, 1): [None]}, hold="batch_per_gpu", loss=falling)
    result = one(tmp_path)
    assert "ccuracy" not in result.text
    assert points_of(result)[0]["loss_start"] == pytest.approx(9.55)
    for name in ("index.html", "report.md", "losses.tex"):
        text = (tmp_path / "s/report" / name).read_text()
        assert ("Training loss" in text, "ccuracy" in text) == (True, False)
    assert not (tmp_path / "s/report/accuracy.tex").exists()


def test_a_gap_is_the_difference_of_medians() -> None:
    """With the extremes below six runs, an interval from six on, and neither for one run each."""
    a, b = [Fraction(each, 100) for each in (90, 91, 92)], [Fraction(each, 100) for each in (80, 81, 82)]
    found = gap(a, b)
    assert (found.gap, found.low, found.high, found.kind) == pytest.approx((0.1, 0.08, 0.12, "range"))
    assert found.differs is None
    assert gap(a[:1], b[:1]).low is None
    sure = gap(a * 2, b * 2)
    assert (sure.kind, sure.differs, gap(a * 2, a * 2).differs) == ("95 %", True, False)


def test_equal_training_is_known_and_equal() -> None:
    """What is unknown is equal to nothing, and so is another evaluation set."""
    shares = (Fraction(1, 2),)
    known = Evaluated(shares, 10, (640,))
    assert same_training(known, known)
    for other in (Evaluated(shares, 10, (None,)), Evaluated(shares, 20, (640,)), Evaluated(shares, 10, (1280,))):
        assert not same_training(known, other)
    assert not same_training(Evaluated(shares, 10, (None,)))
