"""Gates: each holds on what it should; faults planted in real training end in the gate that is there for it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hpcddp.core.attempt_records import GpuTelemetry
from hpcddp.core.point import Data, Ddp, Point
from hpcddp.data import TrainLoader
from hpcddp.worker import attempt as attempt_module
from hpcddp.worker import gates, training_run
from hpcddp.worker.barriers import evaluation_barrier, final_barrier, steps_barrier
from hpcddp.worker.rank_result import EvaluatedShare, EvaluationSums, NodeShare
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training import evaluate as evaluate_module
from hpcddp.worker.training import parallel
from hpcddp.worker.training import train as train_module
from hpcddp.worker.training.preemption import PolledSteps
from hpcddp.worker.training.trainer import Trainer
from hpcddp.worker.training.window import StepWindow
from tests.worker import forked, given


def share(first: int, end: int, samples: int | None = None, mismatch: int | None = None) -> EvaluatedShare:
    counted = end - first if samples is None else samples
    return EvaluatedShare(samples=counted, correct=0, loss_sum=0.0, first=first, end=end, mismatch=mismatch)


SAME, OTHER = {"at the start": "aa", "at the end": "bb"}, {"at the start": "aa", "at the end": "cc"}
APART = "1 of 2 ranks differ from rank 0"


@pytest.mark.parametrize(
    ("gate", "by_rank", "more", "passed", "says"),
    [
        (gates.parameters_agree, [SAME, SAME], (), True, "2 rank(s), SHA-256 at the start aa; at the end bb"),
        (gates.parameters_agree, [SAME, OTHER], (), False, f"at the end {APART}: rank 1 has cc, rank 0 bb"),
        (gates.parameters_agree, [SAME, {"at the start": "aa"}], (), False, f"at the end {APART}: rank 1 has None, rank 0 bb"),
        (gates.loss_is_finite, [True, True], (), True, "every step of 2 rank(s)"),
        (gates.loss_is_finite, [True, False], (), False, "rank 1 had a loss that is infinite or not a number (1 of 2 ranks)"),
        (gates.ranks_stepped_equally, [6, 6], (6,), True, "6 steps on each of 2 rank(s)"),
        (gates.ranks_stepped_equally, [6, 5], (6,), False, "rank 1 made 5 of 6 steps"),
        (gates.every_epoch_reshuffled, [None, None], (3,), True, "3 epoch(s) begun, no order twice in a row"),
        (gates.every_epoch_reshuffled, [None, 1], (3,), False, "rank 1 began epoch 1 with the batches of epoch 0"),
        (gates.buffers_agree, ["aa", "aa"], (), True, "2 rank(s) as the next forward begins, SHA-256 aa"),
        (gates.buffers_agree, ["aa", "bb"], (), False, f"{APART} as the next forward begins: rank 1 has bb, rank 0 aa"),
        (gates.no_restart_inside, [None, None], (4,), True, "4 timed steps follow each other on each of 2 rank(s)"),
        (gates.no_restart_inside, [None, "step 3 comes twice"], (4,), False, "rank 1: step 3 comes twice"),
        (gates.ranks_agree, ["a", "a"], (), True, "2 rank(s) made the same calls and hold the same times"),
        (gates.ranks_agree, ["a", "a", "b"], (), False, "rank 2 holds other times than rank 0"),
    ],
)
def test_the_first_rank_that_differs_is_named(gate: Any, by_rank: list[Any], more: Any, passed: bool, says: str) -> None:
    found = gate(by_rank, *more)
    assert (found.passed, found.evidence) == (passed, says)


@pytest.mark.parametrize(
    ("shares", "passed", "says"),
    [
        ([share(0, 48), share(48, 97)], True, "97 of 97 samples: 48 to 49 by each of 2 ranks"),
        ([share(0, 48, 97), share(48, 97, 0)], False, "rank 0 evaluated 97 of its 48 samples; all ranks 97 of 97"),
        ([share(0, 48), share(48, 97, 50)], False, "rank 1 evaluated 50 of its 49 samples; all ranks 98 of 97"),
        ([share(0, 48), share(0, 48)], False, "rank 1 did not evaluate sample 0 in its place"),
        ([share(0, 48), share(48, 97, mismatch=55)], False, "rank 1 did not evaluate sample 55 in its place"),
        ([share(0, 48)], False, "the ranks' shares end at sample 48 of 97"),
    ],
)
def test_evaluation_is_exact(shares: list[EvaluatedShare], passed: bool, says: str) -> None:
    found = gates.evaluation_is_exact(shares, 97)
    assert (found.passed, found.evidence) == (passed, says)


def node(cpus: int | None, of: int = 48, host: str = "gn03") -> NodeShare:
    return NodeShare(host=host, cpus=cpus, of=of)


@pytest.mark.parametrize(
    ("nodes", "foreign", "exclusive", "passed", "says"),
    [
        ([node(48), node(48)], None, True, True, "all CPUs of 2 nodes; other CPU use is unknown"),
        ([node(48), node(8, host="gn04")], None, True, False, "8 of 48 CPUs of gn04, but `layout.exclusive` requests all"),
        ([node(8)], 0.25, False, True, "8 of 48 CPUs of gn03; processes outside the job used at most 25.0% of a node's CPU time"),
        ([node(None)], None, True, True, "the job's share of the CPUs of gn03 is unknown"),
        ([node(None)], 0.031, None, True, "nothing reserves gn03; processes outside the job used at most 3.1%"),
    ],
)
def test_nodes_are_ours(nodes: list[NodeShare], foreign: float | None, exclusive: bool | None, passed: bool, says: str) -> None:
    found = gates.nodes_are_ours(nodes, [foreign] * len(nodes), exclusive)
    assert found.passed is passed
    assert found.evidence.startswith(says)


def gpu(throttle: dict[str, float] | None, begin: float = 1380.0, end: float = 1380.0) -> tuple[str, GpuTelemetry]:
    median = (begin + end) / 2
    found = GpuTelemetry(gpu=1, readings=100, throttle=throttle, sm_mhz_begin=begin, sm_mhz_end=end, sm_mhz_median=median)
    return "gn03", found


@pytest.mark.parametrize(
    ("last", "passed", "says"),
    [
        (gpu({}), True, "2 of 2 GPU(s) read, median clocks 1380 to 1380 MHz, power capped in at most 0% of the readings"),
        (
            gpu({"sw_power_cap": 0.9}, end=1300.0),
            True,
            "2 of 2 GPU(s) read, median clocks 1340 to 1380 MHz, power capped in at most 90%",
        ),
        (gpu({"sw_power_cap": 0.9}, end=1200.0), False, "GPU 1 of gn03 fell from 1380 to 1200 MHz at its power cap (90%"),
        (gpu({"gpu_idle": 0.5}, end=1200.0), True, "2 of 2 GPU(s) read"),
        (gpu({"hw_thermal_slowdown": 0.005}), True, "2 of 2 GPU(s) read"),
        (gpu(None), True, "1 of 2 GPU(s) read"),
        (gpu({"hw_thermal_slowdown": 0.02}), False, "GPU 1 of gn03: hw_thermal_slowdown in 2% of the readings"),
        (gpu({"sw_thermal_slowdown": 0.5}), False, "GPU 1 of gn03: sw_thermal_slowdown in 50% of the readings"),
        (gpu({"hw_power_brake_slowdown": 1.0}), False, "GPU 1 of gn03: hw_power_brake_slowdown in 100% of the readings"),
    ],
)
def test_gpu_clocks_held(last: tuple[str, GpuTelemetry], passed: bool, says: str) -> None:
    """Heat, hardware and power supply are faults from 1 % of the readings on; a power cap is none while clocks stay."""
    found = gates.gpu_clocks_held([gpu({}), last])
    assert found.passed is passed
    assert found.evidence.startswith(says)


SMALL = Data(name="tests.worker.test_evaluate:tiny")
"""64 samples to train on, 97 to evaluate."""

STEPS = 10
SOON = timedelta(seconds=2)


def batchnorm(classes: int) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(1, 4, 3, stride=4), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 49, classes))


def small(ranks: int = 2, **changes: Any) -> Point:
    chosen = {"model": "tests.worker.test_gates:batchnorm", "data": SMALL, "warmup": 2, "steps": STEPS - 2}
    return given.point(ranks, **{**chosen, **changes})


def called_outside_ddp(_: int) -> None:
    def loss(self: Trainer, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.module(self.normalize(images)), labels)

    Trainer._loss = loss  # type: ignore[method-assign]


def no_set_epoch(_: int) -> None:
    one = TrainLoader.epoch
    TrainLoader.epoch = lambda self, n, first_step=0: one(self, 0, first_step)  # type: ignore[method-assign]


def rank_0_evaluates(through_ddp: bool, rank: int) -> None:
    """The others have nothing to do. DDP broadcasts BatchNorm's buffers before a forward: there rank 0 would wait for them."""

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


rank_0_evaluates_bare, rank_0_evaluates_through_ddp = (functools.partial(rank_0_evaluates, ddp) for ddp in (False, True))


def the_second_evaluation_is_short(rank: int) -> None:
    real, calls = evaluate_module.evaluate_share, list[int]()

    def share(trainer: Trainer, batches: Any) -> EvaluationSums:
        calls.append(rank)
        return real(trainer, list(batches)[:-1] if rank == 1 and len(calls) == 2 else batches)

    vars(evaluate_module)["evaluate_share"] = share


def others_do_not_evaluate(rank: int) -> None:
    rank_0_evaluates(True, rank)
    if rank:
        vars(attempt_module)["evaluate"] = lambda *_: None
    vars(attempt_module)["final_barrier"] = functools.partial(final_barrier, straggle=SOON)


def evaluates_anothers_share(rank: int) -> None:
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


def one_step_short(short: int, rank: int) -> None:
    real = StepWindow.stretches

    def shorter(self: StepWindow) -> Iterator[range | PolledSteps]:
        for stretch in real(self):
            yield range(stretch.start, STEPS - 1) if stretch.stop == STEPS else stretch

    if rank == short:
        StepWindow.stretches = shorter  # type: ignore[method-assign, assignment]


def shorter_data(rank: int) -> None:
    opened = vars(training_run)["make_feed"]

    def feed(*about: Any) -> Any:
        found = opened(*about)
        found.plan = dataclasses.replace(found.plan, samples=found.plan.samples - rank * found.plan.batch)
        return found

    vars(training_run)["make_feed"] = feed


def one_exchange_left_out(rank: int) -> None:
    """A rank keeps its gradients to itself once: at the end the other makes an all-reduce that nobody answers."""
    real, calls = Trainer._exchange, [0]

    def exchange(self: Trainer, now: bool) -> Any:
        calls[0] += 1
        return real(self, now and not (rank == 1 and calls[0] == 5))

    Trainer._exchange = exchange  # type: ignore[method-assign]
    vars(training_run)["steps_barrier"] = lambda group, steps, _: steps_barrier(group, steps, SOON)


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


class Unsynced(DistributedDataParallel):
    """As with broadcast_buffers=False."""

    def _sync_buffers(self) -> None: ...


def buffers_stay_apart(_: int) -> None:
    vars(parallel)["DistributedDataParallel"] = Unsynced


def touched(classes: int) -> nn.Module:
    """A model that changes a buffer after the broadcast, otherwise in each rank."""
    model = batchnorm(classes)
    norm = model[1]  # type: ignore[index]

    def touch(*_: Any) -> None:
        norm.running_mean += forked.this_rank()

    model.register_forward_pre_hook(touch)
    return model


BUFFERS, EVALUATION, INSIDE = "buffers agree", "evaluation counts every sample once", "no restart inside the window"
EVALUATED, TRAINING = {"evaluate": True}, {"work": "train", "measure": {"epochs": 3}}

FAULTS: dict[str, tuple[Any, dict[str, Any], str, str]] = {
    "called outside ddp": (called_outside_ddp, {}, "parameters agree", f"after step 1 {APART}"),
    "no set_epoch": (no_set_epoch, {}, "every epoch reshuffled", "rank 0 began epoch 1 with the batches of epoch 0"),
    "rank 0 evaluates": (rank_0_evaluates_bare, EVALUATED, EVALUATION, "rank 1 evaluated 0 of its 49 samples; all ranks 48 of"),
    "one is short": (the_second_evaluation_is_short, TRAINING, EVALUATION, "rank 1 evaluated 48 of its 49 samples; all ranks 96"),
    "another's share": (evaluates_anothers_share, EVALUATED, EVALUATION, "rank 1 did not evaluate sample 48 in its place"),
    "restarted": (functools.partial(restarted, False), {}, INSIDE, "rank 0: step 6 begins"),
    "counted anew": (functools.partial(restarted, True), {}, INSIDE, "rank 0: step 4 is followed by step 0"),
    "buffers not broadcast": (buffers_stay_apart, {}, BUFFERS, f"{APART} as the next forward begins"),
    "buffers touched": (None, {"model": "tests.worker.test_gates:touched"}, BUFFERS, f"{APART} as the next forward begins"),
}
"""What is planted in which point; the gate that fails, and no other, with what it says."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_ends_in_its_gate(tmp_path: Path, name: str) -> None:
    plant, changes, gate, says = FAULTS[name]
    found = forked.ran(tmp_path, small(**changes), plant).failed
    assert list(found) == [gate]
    assert says in found[gate]


SHORT = "ended after 9 of 10 steps; the other ranks wait for it in step 9"
ENDS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "through ddp": (rank_0_evaluates_through_ddp, EVALUATED, "1 on node0: evaluated 0 of its 49 samples, but rank 0 has not"),
    "others do not evaluate": (others_do_not_evaluate, EVALUATED, "1 on node0: finished, but rank 0 did not within"),
    "rank 0 is short": (functools.partial(one_step_short, 0), {}, f"0 on node0: {SHORT}"),
    "rank 1 is short": (functools.partial(one_step_short, 1), {}, f"1 on node0: {SHORT}"),
    "data are shorter": (shorter_data, {"work": "epoch"}, "1 on node0: plans 5 timed steps, but rank 0 6"),
    "no exchange": (one_exchange_left_out, {"model": "mnist-cnn"}, "1 on node0: ended after 10 of 10 steps, but rank 0 did not"),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_fault_ends_the_run_with_its_reason(tmp_path: Path, name: str) -> None:
    """Ranks would wait for each other for ever; rows that were made are kept."""
    plant, changes, says = ENDS[name]
    ran = forked.ran(tmp_path, small(**changes), plant, may_fail=True)
    assert ran.end["state"] == "failed"
    assert ran.end["reason"].startswith(f"rank {says}")
    if name.endswith("is short"):
        assert [len(ran.rows(rank)) for rank in (0, 1)] == [9, 9]


SEVERAL = {"ranks see the same data", "ranks compute the same"}
"""Of several ranks only."""

CNN = {"model": "mnist-cnn"}

WAYS: list[tuple[int, dict[str, Any], dict[str, Any]]] = [
    (1, {}, {"evaluate": True}),
    (1, CNN, {}),
    (2, CNN, {"gc": "frozen"}),
    (3, {**CNN, "loader_workers_per_rank": 1}, {"evaluate": True}),
    (2, {"accumulate": 4, "ddp": Ddp(gradient_as_bucket_view=True)}, {"evaluate": True}),
    (2, {"ddp": Ddp(static_graph=True), "warmup": 8}, {"comm": "on"}),
    (3, {"precision": "bf16", "steps": 40}, {"comm": "on"}),
    (2, {"precision": "fp64", "batch_per_gpu": 8}, {"comm": "on", "evaluate": True}),
    (2, {"work": "epoch", "warmup": 0}, {}),
    (2, {"warmup": 1}, {"stop": "interval", "steps": 10, "max_steps": 60}),
    (2, {}, {"input": "synthetic"}),
    (2, {}, {"input": "io"}),
]
"""Ranks, and changes of the point and of how it is measured."""


@pytest.mark.dear
@pytest.mark.parametrize(("ranks", "changes", "measured"), WAYS, ids=[str(number) for number in range(len(WAYS))])
def test_no_gate_fires(tmp_path: Path, ranks: int, changes: dict[str, Any], measured: dict[str, Any]) -> None:
    ran = forked.ran(tmp_path, small(ranks, **changes, measure=measured))
    assert ran.failed == {}
    expected = {*gates.OF_TRAINING, *([BUFFERS] if "model" not in changes else []), *(SEVERAL if ranks > 1 else [])}
    expected |= {EVALUATION} if measured.get("evaluate") else set()
    assert set(ran.gates) == expected
    assert set(ran.read("launch.json")["gates"]) == expected - {BUFFERS}
    for entry in ran.end["ranks"]:
        assert all(abs(entry["clock"][when]["offset_ns"]) < 1e9 for when in ("start", "end"))
