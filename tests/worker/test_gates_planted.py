"""Faults planted in real training: each ends in the gate that is there for it, or in a failed run whose reason names it."""

from __future__ import annotations

import csv
import dataclasses
import functools
import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.point import Data, Point
from hpcddp.core.records import steps_file
from hpcddp.data import TrainLoader
from hpcddp.worker import attempt as attempt_module
from hpcddp.worker import training_run
from hpcddp.worker.barriers import evaluation_barrier, final_barrier, steps_barrier
from hpcddp.worker.main import run
from hpcddp.worker.rank_result import EvaluationSums
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training import evaluate as evaluate_module
from hpcddp.worker.training import parallel
from hpcddp.worker.training import train as train_module
from hpcddp.worker.training.preemption import PolledSteps
from hpcddp.worker.training.trainer import Trainer
from hpcddp.worker.training.window import StepWindow
from tests.worker import forked, given

SMALL = Data(name="tests.worker.test_evaluate:tiny")
"""64 samples to train on, 97 to evaluate."""

STEPS = 10
SOON = timedelta(seconds=2)


def batchnorm(classes: int) -> nn.Module:
    """The smallest model with BatchNorm."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(1, 4, 3, stride=4), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 49, classes))


def small(ranks: int = 2, **changes: Any) -> Point:
    chosen = {"model": "tests.worker.test_gates_planted:batchnorm", "data": SMALL, "warmup": 2, "steps": STEPS - 2}
    found = given.point(ranks, **{**chosen, **changes})
    return dataclasses.replace(found, measure=dataclasses.replace(found.measure, telemetry_hz=0.0))


def planted(study: Path, what: Point, plant: Callable[[int], None]) -> tuple[Path, dict[str, Any]]:
    """The attempt's folder and end.json of a run in whose ranks `plant(rank)` was called first."""
    spec = given.job(study, what)
    outcomes = forked.ranks(study / "output", what.ranks, _run_with, plant, spec_to_dict(spec))
    attempt = spec.attempt_dir("7", 0)
    assert (attempt / "end.json").exists(), "\n".join(outcome.output for outcome in outcomes)
    return attempt, json.loads((attempt / "end.json").read_text())


def _run_with(plant: Callable[[int], None], spec: dict[str, Any]) -> Any:
    plant(this_rank())
    return run(spec)


def this_rank() -> int:
    return int(os.environ["SUBMITIT_LOCAL_GLOBALID"])


def failed(end: dict[str, Any]) -> dict[str, str]:
    assert end["state"] == "done", end["reason"]
    return {gate["name"]: gate["evidence"] for gate in end["gates"] if not gate["passed"]}


def called_outside_ddp(_: int) -> None:
    """Seed 000: the model is wrapped, and the wrapped one is never called."""

    def loss(self: Trainer, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.module(self.normalize(images)), labels)

    Trainer._loss = loss  # type: ignore[method-assign]


def test_a_model_called_outside_ddp(tmp_path: Path) -> None:
    """Each rank trains for itself: parameters drift apart, as seen before the first timed step and at the end."""
    found = failed(planted(tmp_path, small(), called_outside_ddp)[1])
    assert list(found) == ["parameters agree"]
    assert "after step 1 1 of 2 ranks differ from rank 0" in found["parameters agree"]


def no_set_epoch(_: int) -> None:
    one = TrainLoader.epoch
    TrainLoader.epoch = lambda self, n, first_step=0: one(self, 0, first_step)  # type: ignore[method-assign]


def test_a_missing_set_epoch(tmp_path: Path) -> None:
    """Every epoch begins with the batches of the one before."""
    found = failed(planted(tmp_path, small(), no_set_epoch)[1])
    assert found == {"every epoch reshuffled": "rank 0 began epoch 1 with the batches of epoch 0"}


def test_a_loss_that_is_no_number(tmp_path: Path) -> None:
    """A rate of 1e30 makes it infinite or NaN within some steps, on all ranks: the run ends there."""
    optimizer = dataclasses.replace(given.workload().optimizer, lr=1e30)
    _, end = planted(tmp_path, small(optimizer=optimizer), lambda _: None)
    assert (end["state"], end["fault"]["kind"]) == ("failed", "diverged")
    assert re.match(r"rank \d on node0: the loss of step \d is (nan|inf)", end["reason"])


def rank_0_evaluates(through_ddp: bool, rank: int) -> None:
    """Seed 002: rank 0 alone evaluates; the others have nothing to do."""

    def share(trainer: Trainer, batches: Any) -> EvaluationSums:
        model = trainer.model if through_ddp else trainer.module
        samples = 0
        model.eval()
        with torch.no_grad():
            for images, labels in batches if rank == 0 else ():
                model(trainer.normalize(images))
                samples += len(labels)
        return EvaluationSums(samples=samples, correct=0, loss_sum=0.0)

    vars(evaluate_module)["evaluate_share"] = share
    vars(evaluate_module)["evaluation_barrier"] = functools.partial(evaluation_barrier, limit=SOON)


def test_rank_0_evaluates_alone(tmp_path: Path) -> None:
    """Each rank's own numbers tell."""
    _, end = planted(tmp_path, small(evaluate=True), functools.partial(rank_0_evaluates, False))
    evidence = failed(end)["evaluation counts every sample once"]
    assert evidence == "rank 1 evaluated 0 of its 49 samples; all ranks 48 of 97"


def test_rank_0_evaluates_alone_through_ddp(tmp_path: Path) -> None:
    """DDP broadcasts BatchNorm's buffers before the forward: rank 0 would wait for the others there; they say so."""
    _, end = planted(tmp_path, small(evaluate=True), functools.partial(rank_0_evaluates, True))
    assert end["state"] == "failed"
    assert end["reason"].startswith("rank 1 on node0: evaluated 0 of its 49 samples, and rank 0 has not come to the end")


def the_second_evaluation_is_short(rank: int) -> None:
    """Rank 1 leaves out its last batch, once."""
    real, calls = evaluate_module.evaluate_share, list[int]()

    def share(trainer: Trainer, batches: Any) -> EvaluationSums:
        calls.append(rank)
        return real(trainer, list(batches)[:-1] if rank == 1 and len(calls) == 2 else batches)

    vars(evaluate_module)["evaluate_share"] = share


def test_one_of_the_evaluations_of_a_training_is_short(tmp_path: Path) -> None:
    """The gate holds every one of them, and not only the last."""
    training = small(work="train", measure={"epochs": 3})
    found = failed(planted(tmp_path, training, the_second_evaluation_is_short)[1])
    assert list(found) == ["evaluation counts every sample once"]
    assert found.popitem()[1] == "rank 1 evaluated 48 of its 49 samples; all ranks 96 of 97"


def others_do_not_evaluate(rank: int) -> None:
    """As above, where the other ranks do not even come to the evaluation."""
    rank_0_evaluates(True, rank)
    if rank:
        vars(attempt_module)["evaluate"] = lambda *_: None
    vars(attempt_module)["final_barrier"] = functools.partial(final_barrier, straggle=SOON)


def test_the_others_do_not_evaluate(tmp_path: Path) -> None:
    """They are done, and say for whom they wait."""
    _, end = planted(tmp_path, small(evaluate=True), others_do_not_evaluate)
    assert end["state"] == "failed"
    assert end["reason"].startswith("rank 1 on node0: came to its end, and rank 0 did not within")
    assert "a forward through DDP, which broadcasts the model's buffers" in end["reason"]


def others_share(rank: int) -> None:
    """Rank 1 evaluates rank 0's samples, and one of its own to make up the number."""
    real = vars(evaluate_module)["eval_batches"]
    vars(evaluate_module)["eval_batches"] = lambda source, **how: real(Shifted(source, 48 if rank else 0), **how)


class Shifted:
    """A source whose samples are looked for `by` places earlier."""

    def __init__(self, source: Any, by: int) -> None:
        self._source, self._by = source, by
        self.shape = source.shape

    def __len__(self) -> int:
        return len(self._source)

    def batch(self, indices: torch.Tensor) -> Any:
        return self._source.batch(indices - self._by)


def test_a_rank_evaluates_anothers_share(tmp_path: Path) -> None:
    """As many samples as it should, but other ones: the sum alone would be right."""
    found = failed(planted(tmp_path, small(evaluate=True), others_share)[1])
    assert found == {"evaluation counts every sample once": "rank 1 did not have sample 48 where it was to evaluate it"}


def one_step_short(short: int, rank: int) -> None:
    """The loop of one rank ends a step early."""
    real = StepWindow.stretches

    def shorter(self: StepWindow) -> Iterator[range | PolledSteps]:
        for stretch in real(self):
            yield range(stretch.start, STEPS - 1) if stretch.stop == STEPS else stretch

    if rank == short:
        StepWindow.stretches = shorter  # type: ignore[method-assign, assignment]


def rows(attempt: Path, rank: int) -> int:
    with steps_file(attempt, rank).open(newline="") as lines:
        return len(list(csv.DictReader(lines)))


@pytest.mark.parametrize("short", [0, 1])
def test_a_rank_is_one_step_short(tmp_path: Path, short: int) -> None:
    """It says so and ends, so that the other does not wait ten minutes in an all-reduce; the rows of both are kept."""
    attempt, end = planted(tmp_path, small(), functools.partial(one_step_short, short))
    assert (end["state"], end["reason"].split(": ", 1)[0]) == ("failed", f"rank {short} on node0")
    assert end["reason"].endswith("ended after 9 of 10 steps; the others wait for it in step 9")
    assert [rows(attempt, rank) for rank in (0, 1)] == [9, 9]


def shorter_data(rank: int) -> None:
    """One rank's data lack a batch."""
    opened = vars(training_run)["make_feed"]

    def feed(*about: Any) -> Any:
        found = opened(*about)
        found.plan = dataclasses.replace(found.plan, samples=found.plan.samples - rank * found.plan.batch)
        return found

    vars(training_run)["make_feed"] = feed


def test_a_ranks_data_are_shorter(tmp_path: Path) -> None:
    """Before the first step: it would end its epoch earlier."""
    _, end = planted(tmp_path, small(work="epoch"), shorter_data)
    assert end["reason"] == "rank 1 on node0: is to make 5 timed steps and rank 0 6: do both see the same data?"


def one_exchange_left_out(rank: int) -> None:
    """A rank keeps its gradients to itself once: at the end the other makes an all-reduce that nobody answers."""
    real, calls = Trainer._exchange, [0]

    def exchange(self: Trainer, now: bool) -> Any:
        calls[0] += 1
        return real(self, now and not (rank == 1 and calls[0] == 5))

    Trainer._exchange = exchange  # type: ignore[method-assign]
    vars(training_run)["steps_barrier"] = lambda group, steps, _: steps_barrier(group, steps, SOON)


def test_a_rank_leaves_out_an_exchange(tmp_path: Path) -> None:
    """All steps were made, and yet one waits: the ranks that were done say for whom."""
    _, end = planted(tmp_path, small(model="mnist-cnn"), one_exchange_left_out)
    assert end["state"] == "failed"
    assert "rank 1 on node0: ended after 10 of 10 steps, but rank 0 did not within 2 s" in end["reason"]


def restarted(fresh_count: bool, _: int) -> None:
    """The loop begins anew inside the window, and does not say so."""
    real, restart = StepWindow.stretches, StepTimer.restart

    def in_two(self: StepWindow) -> Iterator[range | PolledSteps]:
        for stretch in real(self):
            yield from (range(stretch.start, 6), range(6, stretch.stop)) if 6 in stretch else (stretch,)

    def forgetful(self: StepTimer) -> None:
        restart(self)
        self._step = 0

    vars(train_module)["AFTER_PAUSE"] = 0
    StepWindow.stretches = in_two  # type: ignore[method-assign, assignment]
    if fresh_count:
        StepTimer.restart = forgetful  # type: ignore[method-assign]


@pytest.mark.parametrize("fresh_count", [False, True])
def test_a_restart_inside_the_window(tmp_path: Path, fresh_count: bool) -> None:
    """The rows no longer follow each other in time or, where steps are counted anew, in number."""
    found = failed(planted(tmp_path, small(), functools.partial(restarted, fresh_count))[1])
    assert list(found) == ["no restart inside the window"]
    says = "rank 0: step 4 is followed by step 0" if fresh_count else "rank 0: step 6 begins"
    assert found["no restart inside the window"].startswith(says)


class Unsynced(DistributedDataParallel):
    """As with broadcast_buffers=False."""

    def _sync_buffers(self) -> None: ...


def buffers_stay_apart(_: int) -> None:
    vars(parallel)["DistributedDataParallel"] = Unsynced


def test_buffers_that_are_not_broadcast(tmp_path: Path) -> None:
    """Every rank would go on with statistics of its own samples."""
    found = failed(planted(tmp_path, small(), buffers_stay_apart)[1])
    assert list(found) == ["buffers agree"]
    assert found["buffers agree"].startswith("1 of 2 ranks differ from rank 0 as the next forward begins")


def touched(classes: int) -> nn.Module:
    """A model that changes a buffer after the broadcast, otherwise in each rank."""
    model = batchnorm(classes)
    norm = model[1]  # type: ignore[index]

    def touch(*_: Any) -> None:
        norm.running_mean += this_rank()

    model.register_forward_pre_hook(touch)
    return model


def test_buffers_that_are_touched_after_the_broadcast(tmp_path: Path) -> None:
    """What counts is what the model computes with."""
    what = small(model="tests.worker.test_gates_planted:touched")
    assert list(failed(planted(tmp_path, what, lambda _: None)[1])) == ["buffers agree"]
