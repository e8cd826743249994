"""Time to an accuracy: from known epochs to known times, with what did not reach it, and where more GPUs stop helping."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hpcddp.analysis.records.epochs import Epoch
from hpcddp.analysis.study.epochs import GIVEN, reached, targets_frame
from hpcddp.analysis.study.frames import runs_frame
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.study.scaling import scaling_frame
from hpcddp.core.point import Point
from hpcddp.core.run_root import Study
from tests.analysis.report.test_analyze import one
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study

pytestmark = pytest.mark.dear

S = 1000 * MS


def rows(shares: Sequence[int | None], epoch_s: float, batch: int) -> list[list[int | None]]:
    """An epoch of two steps per share, in percent of 1,000; None: it was not evaluated."""
    found: list[list[int | None]] = []
    for epoch, share in enumerate(shares, start=1):
        end = round(epoch * epoch_s * S)
        right = None if share is None else 10 * share
        of = None if share is None else 1000
        found.append([epoch, 2 * epoch, 2 * epoch * batch, end, end + epoch * S, 10**10, batch, S, right, of, of and S])
    return found


def trainings(folder: Path, runs: Mapping[Point, Sequence[tuple[Sequence[int | None], float]]]) -> Study:
    """For each point (accuracies of its epochs, seconds of an epoch) of each run."""
    study = write_study(folder, list(runs), max(map(len, runs.values())))
    for of, given in runs.items():
        for run, (shares, epoch_s) in enumerate(given, start=1):
            epochs = rows(shares, epoch_s, of.global_batch)
            last = next(row[8] for row in epochs[::-1] if row[8] is not None)
            end = {"evaluation": {"samples": 1000, "correct": last, "loss": 0.1}}
            recorded = Recorded(step_ns=round(epoch_s * S / 2), steps=2 * len(shares) - 1, job=str(run), epochs=epochs, end=end)
            write_run(study, of, recorded, run)
    return study


def sized(gpus: int, **changes: Any) -> Point:
    return point(1, gpus, work="train", epochs=4, **changes)


def times_in(tmp_path: Path) -> tuple[list[dict[str, Any]], str]:
    """The rows of times to accuracy, and the sentence on them."""
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


def test_time_epochs_and_node_hours_to_the_target(tmp_path: Path) -> None:
    """One GPU takes 2 epochs of 10 s, four take 3 of 4 s: 20 / 12 times as fast, at 10 / 4 x 4 times the throughput."""
    one_gpu, four = sized(1, target_accuracy=0.9), sized(4, target_accuracy=0.9)
    trainings(tmp_path / "s", {one_gpu: [((50, 90), 10.0)] * 3, four: [((50, 80, 95), 4.0)] * 3})
    (first, last), sentence = times_in(tmp_path)
    assert (first["target"], first["target_of"], first["epochs"], first["train_s"], first["reached"]) == (0.9, GIVEN, 2, 20, 3)
    assert (last["epochs"], last["train_s"], last["node_h"], last["gpu_h"]) == (3, 12, 12 / 3600, 4 * 12 / 3600)
    assert last["speedup_1gpu"] == pytest.approx(20 / 12)
    assert last["throughput_1gpu"] == pytest.approx(10.0)
    text = "90.00 % accuracy takes 20.0 s (2 epochs) with one GPU and 12.0 s (3 epochs) with 4 GPUs: 1.67 times as fast"
    assert sentence == f"{text} (range 1.67 to 1.67), where throughput is 10.0 times."


def test_without_a_target_it_is_what_all_runs_reached(tmp_path: Path) -> None:
    """The least of each run's best."""
    trainings(tmp_path / "s", {sized(1): [((50, 93, 92), 1.0), ((60, 95, 96), 1.0)], sized(2): [((70, 91, 94), 1.0)]})
    (first, last), sentence = times_in(tmp_path)
    assert first["target"] == last["target"] == 0.93
    assert (first["epochs"], last["epochs"], last["train_s"]) == (2, 3, 3)
    assert "93.00 % accuracy, the highest that all runs reached, takes" in sentence


def test_runs_that_did_not_reach_it_take_longer_than_any_that_did(tmp_path: Path) -> None:
    """Two of three: the median is the slower of these, and there is no interval. One of three: it is not known."""
    changes = {"target_accuracy": 0.9}
    some = [((90,), 4.0), ((50, 90), 4.0), ((50, 60, 70, 80), 4.0)]
    few = [((90,), 2.0), *[((50, 60, 70, 80), 2.0)] * 2]
    trainings(tmp_path / "s", {sized(1, **changes): [((90,), 6.0)] * 3, sized(2, **changes): some, sized(4, **changes): few})
    (_, second, third), sentence = times_in(tmp_path)
    assert (second["reached"], second["train_s"], second["interval"], second["speedup_1gpu_low"]) == (2, 8, None, None)
    assert (third["reached"], third["train_s"], third["speedup_1gpu"]) == (1, None, None)
    assert sentence.endswith("more than one GPU do not reach it sooner; with 4 GPUs 1 of 3 runs reached it.")


def test_the_sentence_says_where_more_gpus_stop_helping(tmp_path: Path) -> None:
    """Two are faster than one; four need more epochs for it, and as long as two."""
    given = {1: ((90,), 10.0), 2: ((90,), 6.0), 4: ((60, 90), 3.0)}
    trainings(tmp_path / "s", {sized(gpus, target_accuracy=0.9): [each] * 6 for gpus, each in given.items()})
    assert times_in(tmp_path)[1].endswith("; more than 2 GPUs do not reach it sooner.")


def test_the_interval_holds_the_true_speedup(tmp_path: Path) -> None:
    """Of ten studies whose runs differ by 3 %, six runs each: at least nine."""
    draw, held = np.random.default_rng(3), 0
    for study in range(10):
        given = {1: 10.0, 4: 4.0}
        runs = {
            sized(gpus, target_accuracy=0.9): [((50, 90), epoch_s * (1 + 0.03 * draw.standard_normal())) for _ in range(6)]
            for gpus, epoch_s in given.items()
        }
        records = load_study(trainings(tmp_path / str(study), runs))
        frame = runs_frame(records)
        last = targets_frame(records, frame, scaling_frame(frame, records.points, records.hold)).iloc[-1]
        held += bool(last["speedup_1gpu_low"] <= 2.5 <= last["speedup_1gpu_high"])
    assert held >= 9


def test_every_epoch_is_in_the_files(tmp_path: Path) -> None:
    """A row each, those that were not evaluated too, with the hours of training alone."""
    trainings(tmp_path / "s", {sized(2): [((None, 90), 18.0)]})
    plain = one(tmp_path).plain
    found = pd.read_csv(tmp_path / "s/report/epochs.csv")
    assert list(found["accuracy"].fillna(-1)) == [-1, 0.9]
    assert list(found["node_h"]) == [0.005, 0.01]
    assert list(found["gpu_h"]) == [0.01, 0.02]
    assert list(found["elapsed_s"]) == [19, 38]
    assert [row["epoch"] for row in json.loads((tmp_path / "s/report/report.json").read_text())["epochs"]] == [1, 2]
    assert {"epochs.csv", "to_accuracy.csv", "to_accuracy.tex"} < set(plain["files"])


def test_a_study_without_epochs_has_none_of_it(tmp_path: Path) -> None:
    """Neither files nor a table."""
    study = write_study(tmp_path / "s", [point(1, 1)])
    write_run(study, point(1, 1), Recorded(step_ns=MS))
    plain = one(tmp_path).plain
    assert (plain["epochs"], plain["to_accuracy"]) == ([], [])
    assert not {"epochs.csv", "to_accuracy.csv"} & set(plain["files"])
