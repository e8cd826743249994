"""Loops over epochs, with short batches and with delays of a known length: what is counted, and in which part."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, IterableDataset, default_collate

from hpcddp.analysis.records.rows import Columns
from hpcddp.analysis.runs.run import Run
from hpcddp.core.records import AFTER_PAUSE, STEP_COLUMNS, WARMUP
from hpcddp.probe import measure
from hpcddp.probe.loop_recorder import StepSequence
from hpcddp.worker.timing.clock import EventClock
from hpcddp.worker.timing.steptimer import StepTimer
from tests.probe.clocked import rate_by_clock
from tests.probe.loops import (
    BATCH,
    Loop,
    SlowEverySecondTime,
    ddp,
    group,
    loader,
    measured,
    network,
    only,
    plain_step,
    rows_of,
    sgd,
    with_runs,
)
from tests.worker import forked
from tests.worker.test_steptimer import Stream, cell, rows


def script_run(steps: int, warmup: int) -> Any:
    """A run of so many steps in one stretch, behind the first step that counts nowhere."""
    return SimpleNamespace(
        steps=0,
        window=SimpleNamespace(timed_from=warmup, interrupted=False),
        profiled=None,
        log=SimpleNamespace(write_finished=lambda: None),
        pause=lambda: None,
        stretches=lambda: iter([range(steps)]),
    )


def test_the_first_step_counts_nowhere_and_the_warm_up_is_flagged() -> None:
    timer = StepTimer(EventClock(Stream().event))
    sequence = StepSequence(timer, lambda: script_run(3, warmup=2))
    assert [sequence.close(8) for _ in range(4)] == [False, False, False, True]
    flags, samples = (STEP_COLUMNS.index(name) for name in ("flags", "samples"))
    assert [(row[flags], row[samples]) for row in rows(timer.drain())] == [(WARMUP | AFTER_PAUSE, 8), (WARMUP, 8), (0, 8)]


def test_an_evaluation_among_accumulated_batches_is_of_no_step() -> None:
    stream = Stream()
    timer = StepTimer(EventClock(stream.event))
    sequence = StepSequence(timer, lambda: script_run(2, warmup=0))
    sequence.close(8)
    stream.enqueue(1.0)
    timer.mark("backward")
    stream.enqueue(40.0)
    sequence.pause()
    stream.enqueue(2.0)
    timer.mark("backward")
    sequence.close(8)
    (row,) = rows(timer.drain())
    assert (cell(row, "backward_ns"), cell(row, "other_ns"), cell(row, "total_ns")) == (3_000_000, 0, 3_000_000)


SHORT = 3
"""Samples of the last batch of an epoch, behind three full ones."""

SLEEP_S = 0.2


def short_loader() -> DataLoader[Any]:
    return DataLoader(loader(3 * BATCH + SHORT).dataset, batch_size=BATCH)


class Unsized(IterableDataset[Any]):
    """Without a length."""

    def __iter__(self) -> Iterator[Any]:
        yield from short_loader().dataset  # type: ignore[misc]


def in_epochs(take: Callable[[Any, Any], Any], *, epochs: int = 5, world: int = 1, **options: Any) -> int:
    """Trains, and times steps 4 to 11, two of them short; how many batches the loop got. `take`: its batches of an epoch."""
    model = network() if world == 1 else ddp(network())
    optimizer, got = sgd(model), 0
    with measure(model, optimizer, **{"samples_per_step": BATCH, "warmup_steps": 2, "steps": 8, **options}) as steps:
        for _ in range(epochs):
            for batch in take(steps, short_loader()):
                plain_step(batch, model, optimizer, steps)
                got += 1
            model.eval()
            time.sleep(SLEEP_S)  # an evaluation
            model.train()
    return got


def counts(run: Run) -> tuple[str | None, int | None, int | None]:
    """Why it is rejected, its timed steps and their samples."""
    return run.reason, run.steady_steps, run.steady_samples


def plainly(steps: Any, batches: Any) -> Any:
    return steps(batches)


def numbered(steps: Any, batches: Any) -> Any:
    """By enumerate, with the length that a progress bar shows."""
    assert len(steps(batches)) == len(batches)
    return (batch for _, batch in enumerate(steps(batches)))


def by_next(steps: Any, batches: Any) -> Any:
    """`for step in range(n): batch = next(it)`."""
    it = iter(steps(batches))
    for _ in range(len(batches)):
        yield next(it)


def without_length(steps: Any, batches: Any) -> Any:
    return steps(DataLoader(Unsized(), batch_size=BATCH))


@pytest.mark.parametrize("take", [plainly, numbered, by_next, without_length])
def test_every_batch_is_trained_and_counted(tmp_path: Path, take: Callable[[Any, Any], Any]) -> None:
    """The loop gets all its batches, those behind the last measured step as well, and ends with its loader."""

    def loop() -> None:
        assert in_epochs(take) == 5 * 4

    run = only(measured(tmp_path, 1, loop))
    assert counts(run) == (None, 8, 2 * (3 * BATCH + SHORT))
    assert (run.timed_ns or 0) / 1e9 < SLEEP_S


@pytest.mark.dear
def test_samples_are_those_of_all_ranks(tmp_path: Path) -> None:
    def loop() -> None:
        with group():
            in_epochs(plainly, world=2)

    assert counts(only(measured(tmp_path, 2, loop))) == (None, 8, 2 * 2 * (3 * BATCH + SHORT))


def left_early(steps: Any, batches: Any) -> Any:
    return itertools.islice(steps(batches), 3)


def test_an_epoch_that_is_left(tmp_path: Path) -> None:
    """Its last step is one where the optimizer made it."""
    run = only(measured(tmp_path, 1, lambda: in_epochs(left_early)))
    assert counts(run) == (None, 8, 8 * BATCH)
    assert (run.timed_ns or 0) / 1e9 < SLEEP_S


def test_a_last_step_of_fewer_batches(tmp_path: Path) -> None:
    """Two batches a step, three a loader, as Accelerate has it: the samples of an epoch's last step are those that it has."""

    def accumulating() -> None:
        model, data = network(), loader(3 * BATCH)
        optimizer = sgd(model)
        with measure(model, optimizer, samples_per_step=2 * BATCH, iterations_per_step=2, warmup_steps=1, steps=4) as steps:
            for _ in range(4):
                for number, (images, labels) in enumerate(steps(data), start=1):
                    cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
                    if number % 2 == 0 or number == len(data):
                        optimizer.step()
                        optimizer.zero_grad()

    assert counts(only(measured(tmp_path, 1, accumulating))) == (None, 4, 2 * 3 * BATCH)


def test_a_wrong_number_rejects_the_run(tmp_path: Path) -> None:
    """The batch of all ranks, say, in place of the rank's own."""
    run = only(measured(tmp_path, 1, lambda: in_epochs(left_early, samples_per_step=2 * BATCH)))
    assert "has 8 samples in a step by its batches, but the script declares 16: correct samples_per_step" in str(run.reason)


def test_the_script_counts_by_itself(tmp_path: Path) -> None:
    """Where a sample in its words is half a row."""

    def packed(steps: Any, batches: Any) -> Any:
        return steps(batches, samples=lambda batch: 2 * len(batch[0]))

    run = only(measured(tmp_path, 1, lambda: in_epochs(packed, samples_per_step=2 * BATCH)))
    assert (run.reason, run.steady_samples) == (None, 4 * (3 * BATCH + SHORT))


@pytest.mark.dear
def test_measured_again_is_the_same_point(tmp_path: Path) -> None:
    """The probe's own hook, which DDP keeps, is not the script's; and it times the buckets of each measurement."""

    def in_three_epochs() -> None:
        with group():
            model = ddp(network())
            optimizer = sgd(model)
            for _ in range(3):
                with measure(model, optimizer, samples_per_step=BATCH, warmup_steps=1, steps=4) as steps:
                    for batch in steps(loader()):
                        plain_step(batch, model, optimizer, steps)

    found = measured(tmp_path, 2, in_three_epochs)
    assert [(run.label, run.state, run.exchange is not None) for run in found.runs] == [(found.runs[0].label, "counts", True)] * 3


def test_a_loop_that_fetches_by_itself_is_told(tmp_path: Path) -> None:
    """Its waiting for data cannot be told from the rest of the step."""

    def fetching() -> None:
        it = itertools.cycle(loader())
        in_epochs(lambda steps, _: (next(it) for _ in steps(range(4))))

    (outcome,) = forked.ranks(tmp_path / "output", 1, with_runs, tmp_path / "runs", fetching)
    assert 'Pass steps() the loader, or mark the end of each fetch: steps.mark("data_wait")' in outcome.output


DELAY_S = 0.1

PLACES = ("data_wait", "forward", "backward", "optimizer")


class Slow(nn.Module):
    """Calls that in its forward, or when its gradient has come."""

    def __init__(self, slow: Callable[[], None], in_backward: bool = False) -> None:
        super().__init__()
        self.slow, self.in_backward = slow, in_backward

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if not self.in_backward:
            self.slow()
            return images
        out = images.clone()
        out.register_hook(lambda gradient: self.slow())  # type: ignore[no-untyped-call]
        return out


class SlowSGD(torch.optim.SGD):
    slow: Callable[[], None]

    def step(self, closure: Any = None) -> Any:
        self.slow()
        return super().step(closure)


def delayed(where: str) -> Loop:
    """The plain loop with a delay in every second step."""
    slow, (first, *others) = SlowEverySecondTime(DELAY_S), network().children()

    def slow_sgd(model: nn.Module) -> torch.optim.Optimizer:
        made = SlowSGD(model.parameters(), lr=0.01)
        made.slow = slow
        return made

    def collate(samples: Any) -> Any:
        slow()
        return default_collate(samples)

    loops = {
        "data_wait": Loop(network(), batches=loader(collate_fn=collate)),
        "forward": Loop(nn.Sequential(Slow(slow), network())),
        "backward": Loop(nn.Sequential(first, Slow(slow, in_backward=True), *others)),
        "optimizer": Loop(network(), make_optimizer=slow_sgd),
    }
    return loops[where]


def rise(table: Columns, part: str, of_steps: Callable[[Any], Any] = np.median) -> float:
    """How much longer a part lasts in every second steady step than in the others, as a share of the delay."""
    values = table[f"{part}_ns"][table["flags"] & WARMUP == 0]
    fast, slow = sorted((float(of_steps(values[0::2])), float(of_steps(values[1::2]))))
    return (slow - fast) / (DELAY_S * 1e9)


@pytest.mark.timed
@pytest.mark.parametrize("where", PLACES)
def test_a_delay_is_in_its_part(tmp_path: Path, where: str) -> None:
    """Within a tenth of its length, and not in the others: the least of each, as what else runs only adds to them."""
    measured(tmp_path, 1, delayed(where).run)
    (table,) = rows_of(tmp_path)
    found = {part: rise(table, part, np.min) for part in PLACES}
    assert found == {part: pytest.approx(float(part == where), abs=0.1) for part in found}


@pytest.mark.timed
def test_a_slow_rank_is_waited_for(tmp_path: Path) -> None:
    """Its forward is longer; the other rank waits with its gradients."""

    def one_slow_rank() -> None:
        slow = SlowEverySecondTime(DELAY_S)
        with group() as rank:
            Loop(ddp(nn.Sequential(Slow(slow if rank == 1 else lambda: None), network()))).run()

    measured(tmp_path, 2, one_slow_rank)
    first, second = rows_of(tmp_path)
    assert [rise(second, part) for part in ("forward", "comm_exposed")] == pytest.approx([1, 0], abs=0.1)
    assert [rise(first, part) for part in ("forward", "comm_exposed")] == pytest.approx([0, 1], abs=0.1)


@pytest.mark.timed
@pytest.mark.parametrize(
    ("way", "ranks", "evaluates"),
    [
        ("by hand", 1, True),
        ("by hand", 4, False),
        ("Lightning", 2, True),
        ("transformers", 1, True),
        *(pytest.param(way, ranks, False, marks=pytest.mark.soak) for way, ranks in (("Lightning", 1), ("transformers", 2))),
    ],
)
def test_the_rate_is_that_of_the_clock(way: str, ranks: int, evaluates: bool) -> None:
    """Within 1 %; `python -m tests.bench.probe` has all of them."""
    assert rate_by_clock(way, ranks, evaluates) == pytest.approx(1, abs=0.01)
