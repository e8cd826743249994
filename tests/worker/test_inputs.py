"""From the loader's batches to what a step trains on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch

from hpcddp.data import Batch, TrainLoader
from hpcddp.worker.training.inputs import Normalize, OrderWatch, endless
from tests.worker import given


class StuckLoader(TrainLoader):
    """What forgetting set_epoch does: every epoch in the order of the first."""

    def epoch(self, n: int, first_step: int = 0) -> Iterator[Batch]:
        return super().epoch(0 * n, first_step)


def watched(kind: type[TrainLoader], samples: int, batch_size: int, steps: int) -> OrderWatch:
    watch = OrderWatch()
    loader = kind(given.mnist(samples), batch_size=batch_size, rank=0, ranks=1, workers=0, seed=3, pin_memory=False)
    for _ in itertools.islice(endless(loader, watch), steps):
        pass
    return watch


@pytest.mark.parametrize("steps", [9, 12, 16, 17, 40])
def test_an_order_used_twice_is_noticed(steps: int) -> None:
    """From the first batches of the second epoch on (an epoch has 8 steps of 8 samples)."""
    assert watched(TrainLoader, 64, 8, steps).repeated is None
    assert watched(StuckLoader, 64, 8, steps).repeated == 1


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("first_step", [0, 3, 8, 13])
def test_batches_from_any_step_on(first_step: int, workers: int) -> None:
    """They are those of a run that began at step 0, in the middle of an epoch as at its begin; epochs are counted on."""

    def labels(first: int) -> tuple[list[list[int]], OrderWatch]:
        watch = OrderWatch()
        loader = TrainLoader(given.mnist(64), batch_size=8, rank=0, ranks=1, workers=workers, seed=3, pin_memory=False)
        return [batch[1].tolist() for batch in itertools.islice(endless(loader, watch, first), 20 - first)], watch

    (full_epoch, _), (rest, watch) = labels(0), labels(first_step)
    assert rest == full_epoch[first_step:]
    assert (watch.epochs, watch.repeated) == (3, None)


def test_one_epoch_proves_nothing() -> None:
    """Nor do a few samples in common, which a small set may repeat by chance."""
    assert watched(StuckLoader, 64, 8, 8).repeated is None
    assert watched(StuckLoader, 64, 1, 64 + 7).repeated is None
    assert watched(StuckLoader, 64, 1, 64 + 8).repeated == 1


def test_data_that_are_all_alike_prove_nothing() -> None:
    """A user's own made-up data are often zeros: no order can be told, and no run is rejected for it."""
    watch = OrderWatch()
    for _ in range(2):
        watch.begin_epoch()
        for _ in range(8):
            watch.note((torch.zeros(4, 1, 2, 2), torch.zeros(4, dtype=torch.int64)))
    assert watch.repeated is None


def normalize(dtype: torch.dtype, *, channels_last: bool = False) -> Normalize:
    return Normalize((0.5, 0.5), (0.25, 0.5), dtype=dtype, device=torch.device("cpu"), channels_last=channels_last)


def test_pixels_are_normalised_per_channel() -> None:
    """(255 / 255 - 0.5) / 0.25 = 2 and (0 / 255 - 0.5) / 0.5 = -1."""
    images = torch.stack((torch.full((3, 3), 255), torch.zeros(3, 3))).to(torch.uint8).unsqueeze(0)
    pixels = normalize(torch.float64)(images)
    assert pixels.dtype == torch.float64
    assert set(pixels[0, 0].flatten().tolist()) == {2.0}
    assert set(pixels[0, 1].flatten().tolist()) == {-1.0}
    assert images.max() == 255  # the batch itself is left as it was


def test_floating_point_images_are_used_as_they_are() -> None:
    """Only their type changes, to the model's."""
    images = torch.rand(2, 2, 3, 3)
    assert torch.equal(normalize(torch.float64)(images), images.double())


def test_the_memory_layout_is_the_models() -> None:
    """channels_last models take channels_last images, or every convolution would convert them."""
    pixels = normalize(torch.float32, channels_last=True)(torch.zeros(2, 2, 3, 3, dtype=torch.uint8))
    assert pixels.is_contiguous(memory_format=torch.channels_last)
