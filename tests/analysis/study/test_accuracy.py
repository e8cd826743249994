"""Accuracy and loss of runs and points: exact counts, what they were trained for, and nothing ranked that trained otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hpcddp.analysis.records.epochs import Epoch
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.runs.step_times import LossEnds
from hpcddp.analysis.study.accuracy import ACCURACY_COLUMNS, GIVEN, Evaluated, gap, reached, same_training, targets_frame
from hpcddp.analysis.study.frames import runs_frame
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.study.scaling import scaling_frame
from hpcddp.core.point import Optimizer, Point
from hpcddp.core.run_root import Study
from tests.analysis.report.test_analyze import one
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study

pytestmark = pytest.mark.usefixtures("undrawn")

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


def test_a_loss_is_the_mean_over_ten_steps_and_all_ranks(tmp_path: Path) -> None:
    """Steps 0 to 9 of rank 0 have 9.55 in the mean, of rank 1 0.2 more; steps 20 to 29 have 2 less. The warm-up is among them."""
    run = run_with(tmp_path / "all", loss=falling)
    assert run.losses is not None
    assert [run.losses.start, run.losses.end, run.losses.steps] == pytest.approx([9.65, 7.65, 10])
    assert (run.samples_trained, run.eval_loss) == (30 * 64, 0.1)
    assert run_with(tmp_path / "none").losses == LossEnds(start=2.5, end=0.5, steps=1)
    run = run_with(tmp_path / "some", loss=lambda rank, step: None if (rank, step) == (1, 25) else falling(rank, step))
    assert run.losses is not None
    assert run.losses.start == pytest.approx(9.65)
    assert run.losses.end is None


@pytest.mark.dear
def test_accuracy_is_a_median_with_its_exact_count(tmp_path: Path) -> None:
    study(tmp_path / "s", {sized(1): [9_700, 9_722, 9_710], sized(2): [9_600, 9_601]}, loss=falling)
    result = one(tmp_path)
    first, second = result.plain["points"]
    assert (first["accuracy"], first["eval_correct"], first["eval_samples"], first["eval_n"]) == (0.971, 9_710, 10_000, 3)
    assert (first["accuracy_low"], first["accuracy_high"], first["accuracy_interval"]) == (0.97, 0.9722, "range")
    assert (second["eval_correct"], second["samples_trained"], second["samples_trained_most"]) == (9_600.5, 1_920, None)
    for text in ("97.10 % (9,710 of 10,000) (97.00-97.22)", "96.00 % (9,600.5 of 10,000) (96.00-96.01)"):
        assert text in result.text
    table = (tmp_path / "s/report/accuracy.tex").read_text()
    assert "9,710 of 10,000" in table
    assert list(pd.read_csv(tmp_path / "s/report/scaling.csv"))[-14:] == list(ACCURACY_COLUMNS)


@pytest.mark.dear
def test_the_sentence_ranks_points_that_trained_equally_much(tmp_path: Path) -> None:
    both = {sized(1): [9_720 + run for run in range(6)], sized(2): [9_680 + run for run in range(6)]}
    sentence = one(study(tmp_path / "s", both, loss=falling).folder).plain["sentences"][-1]
    assert sentence.startswith("Accuracy is 97.22 % (9,722.5 of 10,000) with one GPU and 96.83 % (9,682.5 of")
    assert ", after 1,920 samples. The second is 0.40 points lower (95 % -0.4" in sentence
    assert "loss with 2 GPUs went from 9.65 to 7.65 (means of the first and last 10 steps)" in sentence
    alike = study(tmp_path / "alike", {sized(1): [9_700, 9_720, 9_740] * 2, sized(2): [9_701, 9_721, 9_739] * 2})
    assert "not measurably different (95 % -0." in one(alike.folder).plain["sentences"][-1]


@pytest.mark.dear
def test_points_that_trained_unlike_amounts_are_not_ranked(tmp_path: Path) -> None:
    """Four GPUs train four times the samples in as many steps."""
    study(tmp_path / "s", {point(1, gpus, evaluate=True): [9_000 + gpus] * 6 for gpus in (1, 4)}, hold="batch_per_gpu")
    sentence = one(tmp_path).plain["sentences"][-1]
    assert "90.01 % (9,001 of 10,000) with one GPU after 960 samples." in sentence
    assert "These are not ranked, because" in sentence
    assert not any(word in sentence for word in ("lower", "higher", "no difference"))


@pytest.mark.dear
def test_a_study_of_keys_has_its_least_and_its_most_accurate_value(tmp_path: Path) -> None:
    counts = {sized(4, loader_workers_per_rank=workers): [n] for workers, n in ((1, 9_500), (2, 1_000), (4, 9_600))}
    least, most = [text for text in one(study(tmp_path / "s", counts).folder).plain["sentences"] if "Accuracy" in text]
    assert least.startswith("Accuracy (workers 2, the lowest of 3) is 10.00 % (1,000 of 10,000)")
    assert most.startswith("Accuracy (workers 4, the highest of 3) is 96.00 % (9,600 of 10,000)")


@pytest.mark.dear
def test_without_an_evaluation_nothing_is_said_of_accuracy(tmp_path: Path) -> None:
    study(tmp_path / "s", {point(1, 1): [None]}, hold="batch_per_gpu", loss=falling)
    result = one(tmp_path)
    assert "ccuracy" not in result.text
    assert result.plain["points"][0]["loss_start"] == pytest.approx(9.55)
    for name in ("index.html", "report.md", "losses.tex"):
        text = (tmp_path / "s/report" / name).read_text()
        assert ("Training loss" in text, "ccuracy" in text) == (True, False)
    assert not (tmp_path / "s/report/accuracy.tex").exists()


def test_a_gap_is_the_difference_of_medians() -> None:
    a, b = [Fraction(each, 100) for each in (90, 91, 92)], [Fraction(each, 100) for each in (80, 81, 82)]
    found = gap(a, b)
    assert (found.gap, found.low, found.high, found.kind) == pytest.approx((0.1, 0.08, 0.12, "range"))
    assert found.differs is None
    assert gap(a[:1], b[:1]).low is None
    sure = gap(a * 2, b * 2)
    assert (sure.kind, sure.differs, gap(a * 2, a * 2).differs) == ("95 %", True, False)


def test_equal_training_is_known_and_equal() -> None:
    """What is unknown is equal to nothing, and so is another evaluation set."""
    known, *others = (
        Evaluated((Fraction(1, 2),), samples, (trained,)) for samples, trained in ((10, 640), (10, None), (20, 640), (10, 1280))
    )
    assert same_training(known, known)
    assert not any(same_training(known, other) for other in others)
    assert not same_training(others[0])


S = 1000 * MS


def epoch_rows(shares: Sequence[int | None], epoch_s: float, batch: int) -> list[list[int | None]]:
    """An epoch of two steps per share, in percent of 1,000; None: it was not evaluated."""
    found: list[list[int | None]] = []
    for epoch, share in enumerate(shares, start=1):
        end = round(epoch * epoch_s * S)
        evaluated = [None] * 3 if share is None else [10 * share, 1000, S]
        found.append([epoch, 2 * epoch, 2 * epoch * batch, end, end + epoch * S, 10**10, batch, S, *evaluated])
    return found


def trainings(folder: Path, runs: Mapping[Point, Sequence[tuple[Sequence[int | None], float]]]) -> Study:
    """For each point (accuracies of its epochs, seconds of an epoch) of each run."""
    study = write_study(folder, list(runs), max(map(len, runs.values())))
    for of, given in runs.items():
        for run, (shares, epoch_s) in enumerate(given, start=1):
            epochs = epoch_rows(shares, epoch_s, of.global_batch)
            last = next(row[8] for row in epochs[::-1] if row[8] is not None)
            end = {"evaluation": {"samples": 1000, "correct": last, "loss": 0.1}}
            recorded = Recorded(step_ns=round(epoch_s * S / 2), steps=2 * len(shares) - 1, job=str(run), epochs=epochs, end=end)
            write_run(study, of, recorded, run)
    return study


def training(gpus: int, **changes: Any) -> Point:
    return point(1, gpus, work="train", epochs=4, **changes)


def times_in(tmp_path: Path) -> tuple[list[dict[str, Any]], str]:
    """The epoch_rows of times to accuracy, and the sentence on them."""
    plain = one(tmp_path).plain
    return plain["to_accuracy"], plain["sentences"][-1]


def test_the_first_evaluated_epoch_that_is_as_accurate_counts() -> None:
    """As a fraction: 93 of 100 reach 0.93. What was not evaluated reaches nothing; to lose it later costs none."""
    same: dict[str, Any] = {"lr": 0.1, "batch": 1, "train_loss": None, "eval_loss": None}
    counts = [(92, 100), (None, None), (93, 100), (50, 100)]
    epochs = [
        Epoch(epoch=i, step=i, samples=i, train_ns=i, elapsed_ns=i, correct=correct, total=total, **same)
        for i, (correct, total) in enumerate(counts, start=1)
    ]
    assert reached(epochs, Fraction("0.93")) is epochs[2]
    assert reached(epochs, Fraction("0.92")) is epochs[0]
    assert reached(epochs, Fraction("0.931")) is None


@pytest.mark.dear
def test_time_epochs_and_node_hours_to_the_target(tmp_path: Path) -> None:
    """One GPU takes 2 epochs of 10 s, four take 3 of 4 s: 20 / 12 times as fast, at 10 / 4 x 4 times the throughput."""
    one_gpu, four = training(1, target_accuracy=0.9), training(4, target_accuracy=0.9)
    trainings(tmp_path / "s", {one_gpu: [((50, 90), 10.0)] * 3, four: [((50, 80, 95), 4.0)] * 3})
    (first, last), sentence = times_in(tmp_path)
    assert (first["target"], first["target_of"], first["epochs"], first["train_s"], first["reached"]) == (0.9, GIVEN, 2, 20, 3)
    assert (last["epochs"], last["train_s"], last["node_h"], last["gpu_h"]) == (3, 12, 12 / 3600, 4 * 12 / 3600)
    assert last["speedup_1gpu"] == pytest.approx(20 / 12)
    assert last["throughput_1gpu"] == pytest.approx(10.0)
    text = "Training to 90.00 % accuracy takes 20.0 s (2 epochs) with one GPU and 12.0 s (3 epochs) with 4 GPUs."
    assert sentence == f"{text} The speedup is 1.67 (range 1.67 to 1.67), and that of throughput 10.0."


@pytest.mark.dear
def test_without_a_target_it_is_what_all_runs_reached(tmp_path: Path) -> None:
    trainings(tmp_path / "s", {training(1): [((50, 93, 92), 1.0), ((60, 95, 96), 1.0)], training(2): [((70, 91, 94), 1.0)]})
    (first, last), sentence = times_in(tmp_path)
    assert first["target"] == last["target"] == 0.93
    assert (first["epochs"], last["epochs"], last["train_s"]) == (2, 3, 3)
    assert "This accuracy is the highest that all runs reached." in sentence


@pytest.mark.dear
def test_runs_that_did_not_reach_it_take_longer_than_any_that_did(tmp_path: Path) -> None:
    """Two of three: the median is the slower of these, without an interval. One of three: it is not known."""
    all_of, some = [((90,), 6.0)] * 3, [((90,), 4.0), ((50, 90), 4.0), ((50, 60, 70, 80), 4.0)]
    few = [((90,), 2.0), *[((50, 60, 70, 80), 2.0)] * 2]
    runs: dict[int, Any] = {1: all_of, 2: some, 4: few}
    trainings(tmp_path / "s", {training(gpus, target_accuracy=0.9): of for gpus, of in runs.items()})
    (_, second, third), sentence = times_in(tmp_path)
    assert (second["reached"], second["train_s"], second["interval"], second["speedup_1gpu_low"]) == (2, 8, None, None)
    assert (third["reached"], third["train_s"], third["speedup_1gpu"]) == (1, None, None)
    assert sentence.endswith("More than one GPU do not reach it sooner. 1 of 3 runs with 4 GPUs reached it.")


@pytest.mark.dear
def test_the_sentence_says_where_more_gpus_stop_helping(tmp_path: Path) -> None:
    """Two are faster than one; four need more epochs for it, and as long as two."""
    given = {1: ((90,), 10.0), 2: ((90,), 6.0), 4: ((60, 90), 3.0)}
    trainings(tmp_path / "s", {training(gpus, target_accuracy=0.9): [each] * 6 for gpus, each in given.items()})
    assert times_in(tmp_path)[1].endswith(" More than 2 GPUs do not reach it sooner.")


@pytest.mark.dear
def test_the_interval_holds_the_true_speedup(tmp_path: Path) -> None:
    """Of ten studies whose runs differ by 3 %, six runs each: at least nine."""
    draw, held = np.random.default_rng(3), 0
    for study in range(10):
        given = {1: 10.0, 4: 4.0}
        runs = {
            training(gpus, target_accuracy=0.9): [((50, 90), epoch_s * (1 + 0.03 * draw.standard_normal())) for _ in range(6)]
            for gpus, epoch_s in given.items()
        }
        records = load_study(trainings(tmp_path / str(study), runs))
        frame = runs_frame(records)
        last = targets_frame(records, frame, scaling_frame(frame, records.points, records.hold)).iloc[-1]
        held += bool(last["speedup_1gpu_low"] <= 2.5 <= last["speedup_1gpu_high"])
    assert held >= 9


@pytest.mark.dear
def test_every_epoch_is_in_the_files(tmp_path: Path) -> None:
    trainings(tmp_path / "s", {training(2): [((None, 90), 18.0)]})
    plain = one(tmp_path / "s").plain
    found = pd.read_csv(tmp_path / "s/report/epochs.csv")
    assert list(found["accuracy"].fillna(-1)) == [-1, 0.9]
    assert [list(found[name]) for name in ("node_h", "gpu_h", "elapsed_s")] == [[0.005, 0.01], [0.01, 0.02], [19, 38]]
    assert [row["epoch"] for row in plain["epochs"]] == [1, 2]
    assert {"epochs.csv", "to_accuracy.csv", "to_accuracy.tex"} < set(plain["files"])
    write_run(write_study(tmp_path / "n", [point(1, 1)]), point(1, 1), Recorded(step_ns=MS))
    plain = one(tmp_path / "n").plain
    assert (plain["epochs"], plain["to_accuracy"]) == ([], [])
    assert not {"epochs.csv", "to_accuracy.csv"} & set(plain["files"])


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
    assert any("The batch of every row grows" in note for note in plain["notes"])
