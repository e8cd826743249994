"""Loops over epochs: the loader's length, what lies between, samples of short batches, and what follows the measured steps."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from hpcddp.analysis.runs.run import Run
from hpcddp.probe import measure
from hpcddp.probe.batches import BatchSize
from tests.probe.loops import BATCH, ddp, group, loader, network, plain_step
from tests.probe.records import measured, only, with_runs
from tests.worker import forked

SHORT = 3
"""Samples of the last batch of an epoch, behind three full ones."""

SLEEP_S = 0.2


def short_loader() -> DataLoader[Any]:
    """Three batches and a short one."""
    return DataLoader(loader(3 * BATCH + SHORT).dataset, batch_size=BATCH)


class Unsized(IterableDataset[Any]):
    """Without a length."""

    def __iter__(self) -> Iterator[Any]:
        yield from short_loader().dataset  # type: ignore[misc]


def in_epochs(take: Callable[[Any, Any], Any], *, epochs: int = 5, world: int = 1, **options: Any) -> int:
    """Trains, and times steps 4 to 11, two of them short; how many batches the loop got. `take`: its batches of an epoch."""
    model = network() if world == 1 else ddp(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    got = 0
    options = {"samples_per_step": BATCH, "warmup_steps": 2, "steps": 8, **options}
    with measure(model, optimizer, **options) as steps:
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
    """As it stands in the page."""
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
    """A stream."""
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
@pytest.mark.parametrize("world", [1, 2, 4])
def test_short_batches_on_several_ranks(tmp_path: Path, world: int) -> None:
    """Samples are those of all ranks."""

    def loop() -> None:
        with group():
            in_epochs(plainly, world=world)

    assert counts(only(measured(tmp_path, world, loop))) == (None, 8, world * 2 * (3 * BATCH + SHORT))


def left_early(steps: Any, batches: Any) -> Any:
    """Three batches of four."""
    for number, batch in enumerate(steps(batches)):
        yield batch
        if number == 2:
            break


def test_an_epoch_that_is_left(tmp_path: Path) -> None:
    """Its last step is one where the optimizer made it."""
    run = only(measured(tmp_path, 1, lambda: in_epochs(left_early)))
    assert counts(run) == (None, 8, 8 * BATCH)
    assert (run.timed_ns or 0) / 1e9 < SLEEP_S


def accumulating() -> None:
    """Two batches a step, three a loader: the last step of an epoch has one, as Accelerate makes it."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = loader(3 * BATCH)
    with measure(model, optimizer, samples_per_step=2 * BATCH, iterations_per_step=2, warmup_steps=1, steps=4) as steps:
        for _ in range(4):
            for number, (images, labels) in enumerate(steps(data), start=1):
                nn.functional.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
                if number % 2 == 0 or number == len(data):
                    optimizer.step()
                    optimizer.zero_grad()


def test_a_last_step_of_fewer_batches(tmp_path: Path) -> None:
    """Its samples are those that it has."""
    assert counts(only(measured(tmp_path, 1, accumulating))) == (None, 4, 2 * 3 * BATCH)


def test_a_wrong_number_rejects_the_run(tmp_path: Path) -> None:
    """The batch of all ranks, say, in place of the rank's own."""
    run = only(measured(tmp_path, 1, lambda: in_epochs(left_early, samples_per_step=2 * BATCH)))
    assert "has 8 samples in a step by its batches, and the script declares 16: correct samples_per_step" in str(run.reason)


def packed(steps: Any, batches: Any) -> Any:
    """A sample in the script's words is half a row."""
    return steps(batches, samples=lambda batch: 2 * len(batch[0]))


def test_the_script_counts_by_itself(tmp_path: Path) -> None:
    """Where tensors have another number."""
    run = only(measured(tmp_path, 1, lambda: in_epochs(packed, samples_per_step=2 * BATCH)))
    assert (run.reason, run.steady_samples) == (None, 4 * (3 * BATCH + SHORT))


def again_with_ddp() -> None:
    """A measurement in each of three epochs."""
    with group():
        model: DistributedDataParallel = ddp(network())  # type: ignore[assignment]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(3):
            with measure(model, optimizer, samples_per_step=BATCH, warmup_steps=1, steps=4) as steps:
                for batch in steps(loader()):
                    plain_step(batch, model, optimizer, steps)


@pytest.mark.dear
def test_measured_again_is_the_same_point(tmp_path: Path) -> None:
    """The probe's own hook, which DDP keeps, is not the script's; and it times the buckets of each measurement."""
    found = measured(tmp_path, 2, again_with_ddp)
    assert [(run.label, run.state, run.exchange is not None) for run in found.runs] == [(found.runs[0].label, "counts", True)] * 3


def fetching() -> None:
    """A batch of one's own for each number that the loop gets."""
    it = itertools.cycle(loader())
    in_epochs(lambda steps, _: (next(it) for _ in steps(range(4))))


def test_a_loop_that_fetches_by_itself_is_told(tmp_path: Path) -> None:
    """Its waiting for data cannot be told from the rest of the step."""
    (outcome,) = forked.ranks(tmp_path / "output", 1, with_runs, tmp_path / "runs", fetching)
    assert 'data_wait lacks it. Give steps() the loader, or say it by hand: steps.mark("data_wait")' in outcome.output


def image(size: int = 5) -> torch.Tensor:
    """Of three channels."""
    return torch.zeros(3, size, size)


@pytest.mark.parametrize(
    ("batches", "sizes"),
    [
        ([torch.zeros(4, 9), torch.zeros(2, 9)], [4, 2]),
        ([(torch.zeros(4, 9), torch.zeros(4)), (torch.zeros(1, 9), torch.zeros(1))], [4, 1]),
        ([{"ids": torch.zeros(4, 9), "n": torch.tensor(3)}, {"ids": torch.zeros(3, 2), "n": torch.tensor(3)}], [4, 3]),
        ([([image(5), image(6), image(7), image(8)], ({}, {}, {}, {})), ([image()], ({},))], [4, 1]),  # pictures of any size
        ([torch.zeros(35, 4), torch.zeros(20, 4)], [4, 4]),  # time before batch
        ([(torch.zeros(35, 4), torch.zeros(140)), (torch.zeros(35, 2), torch.zeros(70))], [4, 2]),
        ([7, 8], [None, None]),
        ([{"text": "abc"}], [None]),
    ],
)
def test_samples_of_a_batch(batches: list[Any], sizes: list[int | None]) -> None:
    """In the place in which the first one has as many as the script says."""
    size = BatchSize(4)
    assert [size.of(batch, None) for batch in batches] == sizes


def test_the_loader_tells_the_place() -> None:
    """Eight features are no batch of eight, where the loader says four."""
    loads = DataLoader(TensorDataset(torch.zeros(8, 8)), batch_size=4)
    assert [BatchSize(8).of(batch, loads) for batch in loads] == [4, 4]
