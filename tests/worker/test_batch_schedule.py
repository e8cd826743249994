"""`batch_at_epochs`: real ranks train batches that grow, as a plain loop does, and analysis counts what each step trained."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from hpcddp.analysis.records.epochs import check_batches
from hpcddp.analysis.records.rows import Rejected
from hpcddp.analysis.study.load import load_study
from hpcddp.core.point import Optimizer, Point, point_to_dict
from hpcddp.core.records import steps_file, write_json
from hpcddp.core.run_root import Study
from hpcddp.data.sampling import EpochOrder
from tests.worker.test_checkpoint_resume import launch, read
from tests.worker.test_epochs import BATCH, EVALUATED, RATE, SAMPLES, SEED, epochs, plain, striped, training

BATCHES = (BATCH, 3 * BATCH, 3 * BATCH, 9 * BATCH)
"""Of four epochs: 20 steps, 6, 6 and 2."""

STEPS = [SAMPLES // batch for batch in BATCHES]


def growing() -> Point:
    """With a rate that grows with the root of the batch."""
    point = training(epochs=4, resume=True, checkpoint_every_min=0.0, telemetry_hz=5.0)
    chosen = Optimizer(lr=RATE, scaling="sqrt", base_batch=BATCH, batch_at_epochs=(1, 3), batch_factor=3)
    return replace(point, workload=replace(point.workload, optimizer=chosen))


def by_hand() -> Iterator[tuple[float, int]]:
    """Of each epoch: mean loss, and how many of the evaluation set are right. One process, torch and no more."""
    torch.manual_seed(SEED)
    model = plain(10).double()
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9)
    (images, labels), (eval_images, eval_labels) = striped(SAMPLES, 1), striped(EVALUATED, 2)
    for epoch, (batch, steps) in enumerate(zip(BATCHES, STEPS, strict=True)):
        optimizer.param_groups[0]["lr"] = RATE * (batch / BATCH) ** 0.5
        order, losses = EpochOrder(SAMPLES, SEED, epoch).samples_at(torch.arange(steps * batch)), []
        for chosen in order.view(steps, batch):
            loss = nn.functional.cross_entropy(model(images[chosen].double() / 255), labels[chosen])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            yield sum(losses) / steps, int((model(eval_images.double() / 255).argmax(1) == eval_labels).sum())


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """The study, and the attempts of a run that was told to stop in its second epoch, after 23 steps."""
    folder, point = tmp_path_factory.mktemp("growing"), growing()
    found = [launch(folder, point, "7", stop_after=23), launch(folder, point, "8")]
    study = Study(folder)
    write_json(study.study_file, {"schema": 1, "repeat": 1, "points": [{"label": point.label}]})
    write_json(study.point_file(point.label), {"schema": 1, "id": point.id, "point": point_to_dict(point)})
    return folder, found


@pytest.mark.dear
def test_epochs_are_those_of_a_plain_loop(attempts: tuple[Path, list[Path]]) -> None:
    """Losses to their last digits, counts to the sample; each row has its own batch, rate and samples."""
    rows = epochs(attempts[1][-1])
    assert [row["batch"] for row in rows] == list(BATCHES)
    ends = [sum(STEPS[: epoch + 1]) for epoch in range(4)]
    assert [row["step"] for row in rows] == ends
    trained = [steps * batch for steps, batch in zip(STEPS, BATCHES, strict=True)]
    assert [row["samples"] for row in rows] == [sum(trained[: epoch + 1]) for epoch in range(4)]
    assert [row["lr_e12"] for row in rows] == [round(RATE * (batch / BATCH) ** 0.5 * 1e12) for batch in BATCHES]
    for row, (train_loss, correct) in zip(rows, by_hand(), strict=True):
        assert row["train_loss_e9"] == pytest.approx(train_loss * 1e9, abs=20)
        assert row["correct"] == correct


def test_a_rate_is_what_was_trained_by_the_time_it_took(attempts: tuple[Path, list[Path]]) -> None:
    """The samples of epochs timed from end to end, whatever their batch; telemetry's of its window, and all of the run's.

    Another batch than the point's is refused.
    """
    folder, (_, last) = attempts
    (run,) = load_study(Study(folder)).runs
    assert (run.state, run.reason) == ("counts", None)
    batches = [batch for batch, steps in zip(BATCHES, STEPS, strict=True) for _ in range(steps)]
    samples = time_ns = 0
    for rank in (0, 1):
        with steps_file(last, rank).open(newline="") as lines:  # the first attempt made part of two epochs
            rows = [row for row in csv.DictReader(lines) if int(row["step"]) >= STEPS[0] + STEPS[1]]
        samples += sum(batches[int(row["step"])] for row in rows)
        time_ns += sum(int(row["total_ns"]) for row in rows)
    assert run.steady_samples == samples // 2
    assert float(run.rate_per_s or 0) == pytest.approx(samples / (time_ns / 1e9), rel=1e-12)
    assert run.samples_trained == sum(batches)
    end = read(last / "end.json")
    window = range(end["protocol"]["steady_from_step"], sum(STEPS))
    assert end["telemetry"]["nodes"][0]["samples"] == sum(batches[step] for step in window)
    other = replace(growing(), workload=replace(growing().workload, batch_per_gpu=4))
    with pytest.raises(Rejected, match="row 1 has batch 16: the point's is 8 then"):
        check_batches(run.epochs or (), other)
    assert all(gate["passed"] for gate in end["gates"])
