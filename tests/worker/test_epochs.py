"""`work: train`: epochs trained, evaluated and recorded by real ranks, compared with a plain loop of torch.

epochs.csv: integers in the order of its columns, complete after each epoch, with the epochs of earlier attempts.
"""

from __future__ import annotations

import csv
import math
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from hpcddp.core.attempt_records import EvaluationResult
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Data, Optimizer, Point
from hpcddp.core.records import AFTER_PAUSE, EPOCH_COLUMNS, WARMUP, epochs_file
from hpcddp.data.sampling import EpochOrder
from hpcddp.worker.training.epochs import EpochEnd, EpochLog, reaches
from hpcddp.worker.training.window import timed_steps
from tests.worker import given
from tests.worker.test_checkpoint_resume import HERE as DRAWING
from tests.worker.test_checkpoint_resume import at_the_end, launch, read, rows

HERE = "tests.worker.test_epochs"
SAMPLES, EVALUATED, BATCH, STEPS, WARMUP_STEPS = 330, 97, 16, 20, 3
"""20 steps an epoch and 10 samples left over; 97 is a prime, so that no number of ranks divides it."""

RATE, SEED = 0.2, 1


def striped(samples: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise, in which one of ten rows of an image is a little brighter: its number is the label."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (samples,), generator=draw)
    images = torch.randint(156, (samples, 1, 10, 10), generator=draw, dtype=torch.uint8)
    images[torch.arange(samples), 0, labels] += 60
    return images, labels


class Stripes(TensorDataset):
    """Can be learned, but not at once."""

    classes = 10

    def __init__(self, root: str | None, split: str) -> None:
        super().__init__(*(striped(SAMPLES, 1) if split == "train" else striped(EVALUATED, 2)))


def plain(classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(100, 16), nn.ReLU(), nn.Linear(16, classes))


def training(ranks: int = 2, **measure: Any) -> Point:
    return given.point(
        ranks,
        work="train",
        warmup=WARMUP_STEPS,
        model=f"{HERE}:plain",
        data=Data(name=f"{HERE}:Stripes"),
        precision="fp64",
        batch_per_gpu=BATCH // ranks,
        optimizer=Optimizer(lr=RATE),
        seed=SEED,
        measure=measure,
    )


def epochs(attempt: Path) -> list[dict[str, int | None]]:
    with epochs_file(attempt).open(newline="") as lines:
        return [{name: int(text) if text else None for name, text in row.items()} for row in csv.DictReader(lines)]


def what_was_learned(attempt: Path) -> list[dict[str, int | None]]:
    """Without times."""
    return [{name: value for name, value in row.items() if not name.endswith("_ns")} for row in epochs(attempt)]


def by_hand() -> Iterator[tuple[float, int, float]]:
    """Of each epoch: mean loss, how many of the evaluation set are right, and their mean loss. One process, torch and no more."""
    torch.manual_seed(SEED)
    model = plain(10).double()
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9)
    (images, labels), (eval_images, eval_labels) = striped(SAMPLES, 1), striped(EVALUATED, 2)
    for epoch in range(100):
        order, losses = EpochOrder(SAMPLES, SEED, epoch).samples_at(torch.arange(STEPS * BATCH)), []
        for batch in order.view(STEPS, BATCH):
            loss = nn.functional.cross_entropy(model(images[batch].double() / 255), labels[batch])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            scores = model(eval_images.double() / 255)
        correct = int((scores.argmax(1) == eval_labels).sum())
        yield sum(losses) / STEPS, correct, nn.functional.cross_entropy(scores, eval_labels).item()


@pytest.fixture(scope="module")
def three_epochs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An attempt of two ranks, evaluated after the second and the last epoch."""
    return launch(tmp_path_factory.mktemp("epochs"), training(epochs=3, evaluate_every=2), "7")


@pytest.mark.dear
def test_epochs_are_those_of_a_plain_loop(three_epochs: Path) -> None:
    """Counts to the sample, losses to their last digits; empty cells where nothing was evaluated."""
    found = epochs(three_epochs)
    assert [(row["epoch"], row["step"], row["samples"], row["batch"]) for row in found] == [
        (epoch, STEPS * epoch, STEPS * BATCH * epoch, BATCH) for epoch in (1, 2, 3)
    ]
    assert {row["lr_e12"] for row in found} == {round(RATE * 1e12)}
    for row, (train_loss, correct, eval_loss) in zip(found, by_hand(), strict=False):
        assert row["train_loss_e9"] == pytest.approx(train_loss * 1e9, abs=2)
        if row["epoch"] == 1:
            assert (row["correct"], row["total"], row["eval_loss_e9"]) == (None, None, None)
        else:
            assert (row["correct"], row["total"]) == (correct, EVALUATED)
            assert row["eval_loss_e9"] == pytest.approx(eval_loss * 1e9, abs=2)


@pytest.mark.dear
def test_the_end_has_the_epochs_and_all_gates(three_epochs: Path) -> None:
    """The last evaluation is the run's; rows and checksum are those of the file."""
    end, last = read(three_epochs / "end.json"), epochs(three_epochs)[-1]
    assert (end["epoch_rows"], end["epoch_crc32"]) == (3, zlib.crc32(epochs_file(three_epochs).read_bytes()))
    assert (end["evaluation"]["samples"], end["evaluation"]["correct"]) == (last["total"], last["correct"])
    assert {gate["name"] for gate in end["gates"]} >= set(read(three_epochs / "launch.json")["gates"])
    assert all(gate["passed"] for gate in end["gates"])
    assert (end["protocol"]["stopped_by"], end["protocol"]["timed_steps"]) == ("train", 3 * STEPS - WARMUP_STEPS)


@pytest.mark.dear
def test_evaluation_is_outside_the_timed_steps(three_epochs: Path) -> None:
    """An epoch ends in a pause; training time is the sum of the steps, and what passed is more by the evaluations."""
    flags = [flags for _, flags in rows(three_epochs, 0)]
    assert flags == [WARMUP] * 2 + [WARMUP | AFTER_PAUSE] + [0] * 17 + 2 * ([AFTER_PAUSE] + [0] * 19)
    with (three_epochs / "ranks/00000.steps.csv").open(newline="") as lines:
        times_ns = [int(row["total_ns"]) for row in csv.DictReader(lines)]
    assert [row["train_ns"] for row in epochs(three_epochs)] == [sum(times_ns[: STEPS * epoch]) for epoch in (1, 2, 3)]
    apart = [(row["elapsed_ns"] or 0) - (row["train_ns"] or 0) for row in epochs(three_epochs)]
    assert all(0 < before < after for before, after in pairwise(apart))


@pytest.mark.dear
def test_evaluating_changes_nothing_that_is_trained(tmp_path: Path) -> None:
    """The same parameters and statistics, bit for bit, with dropout and BatchNorm, where only the last epoch is evaluated."""
    points = [training(epochs=3, evaluate_every=every) for every in (0, 1)]
    drawn = [replace(point, workload=replace(point.workload, model=f"{DRAWING}:drawing")) for point in points]
    seldom, often = (launch(tmp_path / str(place), point, "7") for place, point in enumerate(drawn))
    assert at_the_end(seldom) == at_the_end(often)
    assert [row["correct"] is None for row in epochs(seldom)] == [True, True, False]
    assert epochs(seldom)[-1]["correct"] == epochs(often)[-1]["correct"]


@pytest.mark.dear
def test_a_run_goes_on_in_the_epoch_where_it_was(tmp_path: Path, three_epochs: Path) -> None:
    """Told to stop in the second epoch and in the third: the last attempt's file is that of a run in one piece."""
    point = training(epochs=3, evaluate_every=2, resume=True, checkpoint_every_min=0.0)
    parts = [launch(tmp_path, point, job, stop_after=steps) for job, steps in (("7", 27), ("8", 20))]
    last = launch(tmp_path, point, "9")
    assert [[row["epoch"] for row in epochs(part)] for part in parts] == [[1], [1, 2]]
    assert [step for step, _ in rows(last, 1)] == list(range(47, 60))
    plain, resumed = what_was_learned(three_epochs), what_was_learned(last)
    for row in (*plain, *resumed):
        row["train_loss_e9"] = (row["train_loss_e9"] or 0) // 10  # summed up in other parts
    assert resumed == plain
    times = epochs(last)
    assert times[:2] == epochs(parts[1])
    assert all((before["elapsed_ns"] or 0) < (after["train_ns"] or 0) for before, after in pairwise(times[:2]))


@pytest.mark.dear
def test_a_recipe_goes_on_where_it_was(tmp_path: Path) -> None:
    """Warm-up, cosine, Nesterov, the average of parameters: interrupted in the second epoch, a run ends as one in one piece does.

    Its epochs have the rates of their last steps. Without the average the same parameters come to another loss.
    """
    recipe = {"lr": RATE, "nesterov": True, "scaling": "linear", "base_batch": 8, "warmup_epochs": 1.0, "schedule": "cosine"}
    point = training(epochs=3, resume=True, checkpoint_every_min=0.0)
    chosen = Optimizer(**recipe, label_smoothing=0.1, ema_decay=0.9, weight_decay=1e-3, weight_decay_on="weights")  # type: ignore[arg-type]
    point = replace(point, workload=replace(point.workload, optimizer=chosen))
    launch(tmp_path / "resumed", point, "7", stop_after=33)
    resumed, plain = launch(tmp_path / "resumed", point, "8"), launch(tmp_path / "plain", point, "7")
    ends = [read(attempt / "end.json") for attempt in (resumed, plain)]
    assert ends[0]["evaluation"] == ends[1]["evaluation"]
    sums = [end["gates"][1]["evidence"].split()[-1] for end in ends]
    assert sums[0] == sums[1]
    bare = replace(point, workload=replace(point.workload, optimizer=replace(chosen, ema_decay=0.0)))
    end = read(launch(tmp_path / "bare", bare, "7") / "end.json")
    assert end["gates"][1]["evidence"].split()[-1] == sums[0]
    assert end["evaluation"]["loss"] != ends[0]["evaluation"]["loss"]
    due = [2 * RATE, 2 * RATE * (1 + math.cos(math.pi * 19 / 40)) / 2, 2 * RATE * (1 + math.cos(math.pi * 39 / 40)) / 2]
    assert [(row["lr_e12"] or 0) / 1e12 for row in epochs(resumed)] == pytest.approx(due, abs=1e-11)


def test_a_run_ends_with_the_epoch_that_reaches_its_target(tmp_path: Path) -> None:
    """On all ranks, and not before: the plain loop says which epoch that is."""
    curve = [correct / EVALUATED for _, (_, correct, _) in zip(range(12), by_hand(), strict=False)]
    target = round(curve[4], 4) - 0.0001
    due = next(epoch for epoch, share in enumerate(curve, 1) if share >= target)
    assert 1 < due <= 5, curve
    attempt = launch(tmp_path, training(epochs=12, target_accuracy=target), "7")
    end = read(attempt / "end.json")
    assert [row["epoch"] for row in epochs(attempt)] == list(range(1, due + 1))
    assert ([rank["rows"] for rank in end["ranks"]], end["steps"]) == ([due * STEPS] * 2, due * STEPS)
    assert (end["state"], end["protocol"]["stopped_by"]) == ("done", "target_accuracy")
    assert all(gate["passed"] for gate in end["gates"])


def test_a_target_is_the_fraction_that_was_written() -> None:
    """93 of 100 reach 0.93 and 92 do not; nothing reaches a target that there is not."""
    assert [reaches(EvaluationResult(samples=100, correct=correct), 0.93) for correct in (92, 93, 94)] == [False, True, True]
    assert all(reaches(EvaluationResult(samples=1000, correct=count), count / 1000) for count in range(1001))
    assert not reaches(EvaluationResult(samples=1, correct=1), None)


def test_a_training_must_outlast_its_warm_up() -> None:
    """In its first epoch where a target may end it there, in all epochs else."""
    assert timed_steps(training(epochs=3), given.plan(WARMUP_STEPS)) == 2 * WARMUP_STEPS
    with pytest.raises(HpcddpError, match=r"an epoch has 3 steps of 16 samples and measure\.warmup_steps is 3: "):
        timed_steps(training(epochs=3, target_accuracy=0.5), given.plan(WARMUP_STEPS))
    with pytest.raises(HpcddpError, match=r"3 epochs have 3 steps of 16 samples and measure\.warmup_steps is 3: "):
        timed_steps(training(epochs=3), given.plan(1))


def test_a_run_that_resumes_has_steps_to_write_a_checkpoint_between() -> None:
    """Within an epoch: one that is a single step has no place for it."""
    point = training(epochs=9, resume=True)
    assert timed_steps(point, given.plan(2)) == 18 - WARMUP_STEPS
    with pytest.raises(HpcddpError, match=r"an epoch is a single step of 16 samples, .*resume is true: .*set it to false"):
        timed_steps(point, given.plan(1))


END = EpochEnd(
    epoch=1,
    steps=10,
    samples=640,
    train_ns=5,
    elapsed_ns=7,
    lr=0.1,
    global_batch=64,
    train_loss=2.25,
    evaluation=EvaluationResult(samples=300, correct=299, loss=0.5),
)


def written(attempt: Path) -> list[list[str]]:
    header, *found = csv.reader(epochs_file(attempt).read_text().splitlines())
    assert tuple(header) == EPOCH_COLUMNS
    return found


def test_a_row_is_there_as_its_epoch_ends(tmp_path: Path) -> None:
    with closing(EpochLog(tmp_path)) as log:
        log.write(END)
        assert written(tmp_path) == [["1", "10", "640", "5", "7", "100000000000", "64", "2250000000", "299", "300", "500000000"]]


def test_a_cell_is_empty_where_nothing_was_evaluated_and_a_loss_is_no_number(tmp_path: Path) -> None:
    with closing(EpochLog(tmp_path)) as log:
        log.write(replace(END, train_loss=math.nan, evaluation=None))
    assert written(tmp_path)[0][-4:] == ["", "", "", ""]


def test_a_later_attempt_repeats_the_epochs_before_it(tmp_path: Path) -> None:
    with closing(EpochLog(tmp_path / "7.0")) as first:
        first.write(END)
    second = tmp_path / "7.1"
    with closing(EpochLog(second, first.rows)) as log:
        log.write(replace(END, epoch=2))
    assert [row[0] for row in written(second)] == ["1", "2"]
    assert log.counts() == (2, zlib.crc32(epochs_file(second).read_bytes()))
