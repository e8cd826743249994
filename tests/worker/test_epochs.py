"""`work: train`: epochs trained, evaluated and recorded by real ranks, compared with a plain loop of torch."""

from __future__ import annotations

import csv
import functools
import itertools
import math
import os
import signal
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from hpcddp.analysis.records.epochs import check_batches
from hpcddp.analysis.records.rows import Rejected
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import find
from hpcddp.core.attempt_records import EvaluationResult
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Data, Optimizer, Point
from hpcddp.core.records import AFTER_PAUSE, EPOCH_COLUMNS, WARMUP, epochs_file
from hpcddp.core.run_root import Study
from hpcddp.data.sampling import EpochOrder
from hpcddp.worker.training import evaluate
from hpcddp.worker.training.epochs import EpochEnd, EpochLog, reaches
from hpcddp.worker.training.window import timed_steps
from tests.analysis.synthetic import write_study
from tests.worker import given
from tests.worker.forked import Ran, ran
from tests.worker.test_resume import HERE as DRAWING
from tests.worker.test_resume import at_the_end, flags_of, launch, steps_of

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


def what_was_learned(done: Ran) -> list[dict[str, int | None]]:
    return [{name: value for name, value in row.items() if not name.endswith("_ns")} for row in epochs(done.attempt)]


def by_hand(batches: Iterable[int] = itertools.repeat(BATCH, 100)) -> Iterator[tuple[float, int, float]]:
    """Of each epoch: mean loss, how many of the evaluation set are right, and their mean loss. One process, torch and no more.

    The rate grows with the root of the batch.
    """
    torch.manual_seed(SEED)
    model = plain(10).double()
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9)
    (images, labels), (eval_images, eval_labels) = striped(SAMPLES, 1), striped(EVALUATED, 2)
    for epoch, batch in enumerate(batches):
        optimizer.param_groups[0]["lr"] = RATE * (batch / BATCH) ** 0.5
        order, losses = EpochOrder(SAMPLES, SEED, epoch).samples_at(torch.arange(SAMPLES // batch * batch)), []
        for chosen in order.view(-1, batch):
            loss = nn.functional.cross_entropy(model(images[chosen].double() / 255), labels[chosen])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            scores = model(eval_images.double() / 255)
        correct = int((scores.argmax(1) == eval_labels).sum())
        yield sum(losses) / len(losses), correct, nn.functional.cross_entropy(scores, eval_labels).item()


@pytest.fixture(scope="module")
def three_epochs(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """An attempt of two ranks, evaluated after the second and the last epoch; its target is out of reach."""
    folder, point = tmp_path_factory.mktemp("epochs"), training(epochs=3, evaluate_every=2, target_accuracy=0.99)
    write_study(folder, [point])
    return launch(folder, point, "7")


@pytest.mark.dear
def test_epochs_are_those_of_a_plain_loop(three_epochs: Ran) -> None:
    found = epochs(three_epochs.attempt)
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
def test_the_end_has_the_epochs_and_all_gates(three_epochs: Ran) -> None:
    end, last = three_epochs.end, epochs(three_epochs.attempt)[-1]
    assert (end["epoch_rows"], end["epoch_crc32"]) == (3, zlib.crc32(epochs_file(three_epochs.attempt).read_bytes()))
    assert (end["evaluation"]["samples"], end["evaluation"]["correct"]) == (last["total"], last["correct"])
    assert three_epochs.failed == {}
    assert three_epochs.gates.keys() >= set(three_epochs.read("launch.json")["gates"])
    assert (end["protocol"]["stopped_by"], end["protocol"]["timed_steps"]) == ("train", 3 * STEPS - WARMUP_STEPS)


@pytest.mark.dear
def test_evaluation_is_outside_the_timed_steps(three_epochs: Ran) -> None:
    assert flags_of(three_epochs, 0) == [WARMUP] * 2 + [WARMUP | AFTER_PAUSE] + [0] * 17 + 2 * ([AFTER_PAUSE] + [0] * 19)
    times_ns, found = [int(row["total_ns"]) for row in three_epochs.rows(0)], epochs(three_epochs.attempt)
    assert [row["train_ns"] for row in found] == [sum(times_ns[: STEPS * epoch]) for epoch in (1, 2, 3)]
    apart = [(row["elapsed_ns"] or 0) - (row["train_ns"] or 0) for row in found]
    assert all(0 < before < after for before, after in pairwise(apart))


@pytest.mark.dear
def test_a_training_is_read_as_it_was_recorded(three_epochs: Ran) -> None:
    records, recorded = load_study(Study(three_epochs.attempt.parents[2])), epochs(three_epochs.attempt)
    (run,), correct = records.runs, recorded[-1]["correct"]
    assert (run.state, run.reason) == ("counts", None)
    assert run.epochs is not None
    assert [(each.epoch, each.step, each.correct) for each in run.epochs] == [
        (row["epoch"], row["step"], row["correct"]) for row in recorded
    ]
    assert (run.samples_trained, run.eval_samples, run.eval_correct) == (3 * STEPS * BATCH, EVALUATED, correct)
    assert run.losses is not None
    assert run.losses.steps == 10
    assert run.losses.start == pytest.approx(run.loss_first, rel=0.2)
    found = find(records)
    assert (found.loaders["loader_samples_per_s"] > 0).tolist() == [True]
    assert correct is not None
    assert list(found.epochs["accuracy"].dropna())[-1] == correct / EVALUATED
    assert found.targets.iloc[0]["reached"] == 0
    assert any(f"({correct} of {EVALUATED})" in sentence for sentence in found.sentences)


@pytest.mark.dear
def test_evaluating_changes_nothing_that_is_trained(tmp_path: Path) -> None:
    points = [training(epochs=3, evaluate_every=every) for every in (0, 1)]
    drawn = [replace(point, workload=replace(point.workload, model=f"{DRAWING}:drawing")) for point in points]
    seldom, often = (launch(tmp_path / str(place), point, "7") for place, point in enumerate(drawn))
    assert at_the_end(seldom) == at_the_end(often)
    rows = epochs(seldom.attempt)
    assert [row["correct"] is None for row in rows] == [True, True, False]
    assert rows[-1]["correct"] == epochs(often.attempt)[-1]["correct"]


def resuming(**measure: Any) -> Point:
    return training(epochs=3, resume=True, checkpoint_every_min=0.0, **measure)


@pytest.mark.dear
def test_a_run_goes_on_in_the_epoch_where_it_was(tmp_path: Path, three_epochs: Ran) -> None:
    point = resuming(evaluate_every=2)
    parts = [launch(tmp_path, point, job, stop_after=steps) for job, steps in (("7", 27), ("8", 20))]
    last = launch(tmp_path, point, "9")
    assert [[row["epoch"] for row in epochs(part.attempt)] for part in parts] == [[1], [1, 2]]
    assert steps_of(last, 1) == list(range(47, 60))
    plain, resumed = what_was_learned(three_epochs), what_was_learned(last)
    for row in (*plain, *resumed):
        row["train_loss_e9"] = (row["train_loss_e9"] or 0) // 10  # summed up in other parts
    assert resumed == plain
    times = epochs(last.attempt)
    assert times[:2] == epochs(parts[1].attempt)
    assert all((before["elapsed_ns"] or 0) < (after["train_ns"] or 0) for before, after in pairwise(times[:2]))


@pytest.mark.dear
def test_a_recipe_goes_on_where_it_was(tmp_path: Path) -> None:
    """Without the average the same parameters come to another loss."""
    recipe = {"lr": RATE, "nesterov": True, "scaling": "linear", "base_batch": 8, "warmup_epochs": 1.0, "schedule": "cosine"}
    chosen = Optimizer(**recipe, label_smoothing=0.1, ema_decay=0.9, weight_decay=1e-3, weight_decay_on="weights")  # type: ignore[arg-type]
    point, bare = (
        replace(resuming(), workload=replace(resuming().workload, optimizer=each))
        for each in (chosen, replace(chosen, ema_decay=0.0))
    )
    launch(tmp_path / "resumed", point, "7", stop_after=33)
    resumed, plain = launch(tmp_path / "resumed", point, "8"), launch(tmp_path / "plain", point, "7")
    without = launch(tmp_path / "bare", bare, "7")
    assert resumed.end["evaluation"] == plain.end["evaluation"]
    assert len({each.gates["parameters agree"]["evidence"].split()[-1] for each in (resumed, plain, without)}) == 1
    assert without.end["evaluation"]["loss"] != plain.end["evaluation"]["loss"]
    due = [2 * RATE, 2 * RATE * (1 + math.cos(math.pi * 19 / 40)) / 2, 2 * RATE * (1 + math.cos(math.pi * 39 / 40)) / 2]
    assert [(row["lr_e12"] or 0) / 1e12 for row in epochs(resumed.attempt)] == pytest.approx(due, abs=1e-11)


def test_a_run_ends_with_the_epoch_that_reaches_its_target(tmp_path: Path) -> None:
    curve = [correct / EVALUATED for _, (_, correct, _) in zip(range(12), by_hand(), strict=False)]
    target = round(curve[4], 4) - 0.0001
    due = next(epoch for epoch, share in enumerate(curve, 1) if share >= target)
    assert 1 < due <= 5, curve
    found = launch(tmp_path, training(epochs=12, target_accuracy=target), "7")
    assert [row["epoch"] for row in epochs(found.attempt)] == list(range(1, due + 1))
    assert ([rank["rows"] for rank in found.end["ranks"]], found.end["steps"]) == ([due * STEPS] * 2, due * STEPS)
    assert (found.failed, found.end["protocol"]["stopped_by"]) == ({}, "target_accuracy")


def test_a_target_is_the_fraction_that_was_written() -> None:
    assert [reaches(EvaluationResult(samples=100, correct=correct), 0.93) for correct in (92, 93, 94)] == [False, True, True]
    assert all(reaches(EvaluationResult(samples=1000, correct=count), count / 1000) for count in range(1001))
    assert not reaches(EvaluationResult(samples=1, correct=1), None)


def test_a_training_must_outlast_its_warm_up() -> None:
    assert timed_steps(training(epochs=3), given.plan(WARMUP_STEPS)) == 2 * WARMUP_STEPS
    with pytest.raises(HpcddpError, match=r"an epoch has 3 steps of 16 samples, but measure\.warmup_steps is 3"):
        timed_steps(training(epochs=3, target_accuracy=0.5), given.plan(WARMUP_STEPS))
    with pytest.raises(HpcddpError, match=r"3 epochs have 3 steps of 16 samples, but measure\.warmup_steps is 3\. "):
        timed_steps(training(epochs=3), given.plan(1))


def test_a_run_that_resumes_has_steps_to_write_a_checkpoint_between() -> None:
    """Within an epoch: one that is a single step has no place for it."""
    point = training(epochs=9, resume=True)
    assert timed_steps(point, given.plan(2)) == 18 - WARMUP_STEPS
    with pytest.raises(HpcddpError, match=r"An epoch is a single step of 16 samples, .*Set measure.resume to false"):
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


GROWING = (BATCH, 3 * BATCH, 3 * BATCH, 9 * BATCH)
"""Of four epochs: 20 steps, 6, 6 and 2."""

GROWING_STEPS = [SAMPLES // batch for batch in GROWING]


def growing() -> Point:
    point = training(epochs=4, resume=True, checkpoint_every_min=0.0, telemetry_hz=5.0)
    chosen = Optimizer(lr=RATE, scaling="sqrt", base_batch=BATCH, batch_at_epochs=(1, 3), batch_factor=3)
    return replace(point, workload=replace(point.workload, optimizer=chosen))


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The second attempt of a run that was told to stop in its second epoch, after 23 steps."""
    folder, point = tmp_path_factory.mktemp("growing"), growing()
    write_study(folder, [point])
    launch(folder, point, "7", stop_after=23)
    return launch(folder, point, "8")


@pytest.mark.dear
def test_epochs_of_growing_batches_are_those_of_a_plain_loop(grown: Ran) -> None:
    rows = epochs(grown.attempt)
    assert [row["batch"] for row in rows] == list(GROWING)
    assert [row["step"] for row in rows] == list(itertools.accumulate(GROWING_STEPS))
    trained = [steps * batch for steps, batch in zip(GROWING_STEPS, GROWING, strict=True)]
    assert [row["samples"] for row in rows] == list(itertools.accumulate(trained))
    assert [row["lr_e12"] for row in rows] == [round(RATE * (batch / BATCH) ** 0.5 * 1e12) for batch in GROWING]
    for row, (train_loss, correct, _) in zip(rows, by_hand(GROWING), strict=True):
        assert row["train_loss_e9"] == pytest.approx(train_loss * 1e9, abs=20)
        assert row["correct"] == correct


def test_a_rate_is_what_was_trained_by_the_time_it_took(grown: Ran) -> None:
    (run,) = load_study(Study(grown.attempt.parents[2])).runs
    assert (run.state, run.reason, grown.failed) == ("counts", None, {})
    batches = [batch for batch, steps in zip(GROWING, GROWING_STEPS, strict=True) for _ in range(steps)]
    rows = [row for rank in (0, 1) for row in grown.rows(rank) if int(row["step"]) >= GROWING_STEPS[0] + GROWING_STEPS[1]]
    samples, time_ns = sum(batches[int(row["step"])] for row in rows), sum(int(row["total_ns"]) for row in rows)
    assert run.steady_samples == samples // 2
    assert float(run.rate_per_s or 0) == pytest.approx(samples / (time_ns / 1e9), rel=1e-12)
    assert run.samples_trained == sum(batches)
    window = range(grown.end["protocol"]["steady_from_step"], sum(GROWING_STEPS))
    assert grown.end["telemetry"]["nodes"][0]["samples"] == sum(batches[step] for step in window)
    other = replace(growing(), workload=replace(growing().workload, batch_per_gpu=4))
    with pytest.raises(Rejected, match="row 1 has batch 16: the point's is 8 then"):
        check_batches(run.epochs or (), other)


BATCHES = 7
"""Of a rank's share of the evaluation set; the second rank's last is short."""


def cut(stopped_in: int, rank: int) -> None:
    """The second rank is told to stop in the second batch of an evaluation; the other one hears of it from there."""
    real, batches = evaluate._correct_and_loss, 0

    def counted(*arguments: Any) -> Any:
        nonlocal batches
        batches += 1
        if batches == (stopped_in - 1) * BATCHES + 2 and rank == 1:
            os.kill(os.getpid(), signal.SIGUSR2)
        return real(*arguments)

    vars(evaluate)["_correct_and_loss"] = counted


@pytest.mark.dear
@pytest.mark.parametrize(("stopped_in", "steps_left"), [(2, STEPS), (3, 0)])
def test_a_stop_signal_cuts_an_evaluation(tmp_path: Path, stopped_in: int, steps_left: int) -> None:
    """Also the last one, which leaves the next attempt no steps: together they are a run in one piece, and it counts."""
    point = resuming(evaluate_every=1)
    study = write_study(tmp_path, [point])
    first = ran(tmp_path, point, functools.partial(cut, stopped_in))
    assert (first.end["state"], first.end["steps"]) == ("interrupted", stopped_in * STEPS)
    assert [row["epoch"] for row in epochs(first.attempt)] == list(range(1, stopped_in))
    last, plain = ran(tmp_path, point, job="8"), ran(tmp_path / "plain", point)
    assert what_was_learned(last) == what_was_learned(plain)
    assert last.end["evaluation"] == plain.end["evaluation"]
    assert sum(each["steps"] for each in last.end["history"]) == 3 * STEPS
    assert [rank["rows"] for rank in last.end["ranks"]] == [steps_left] * 2
    (run,) = load_study(study).runs
    assert (run.state, run.reason) == ("counts", None)


@pytest.mark.dear
def test_a_target_that_the_cut_evaluation_reaches_ends_the_run(tmp_path: Path) -> None:
    point = resuming(evaluate_every=1, target_accuracy=0.01)
    ran(tmp_path, point, functools.partial(cut, 1))
    end = ran(tmp_path, point, job="8").end
    assert (end["state"], end["steps"], end["protocol"]["stopped_by"]) == ("done", STEPS, "target_accuracy")
