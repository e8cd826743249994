from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from hpcddp.core.catalog import CIFAR10
from hpcddp.core.point import Data
from hpcddp.data import TrainLoader, open_source
from hpcddp.data.crop_flip import CROPS, OFFSETS, PADDING, CroppedSource, crop_and_flip
from hpcddp.data.source import Split, TensorSource
from tests.data.files import write_cifar


def images(count: int) -> Tensor:
    return torch.randint(256, (count, *CIFAR10.shape), generator=torch.Generator().manual_seed(3), dtype=torch.uint8)


def source(count: int) -> CroppedSource:
    return CroppedSource(TensorSource(CIFAR10, images(count), torch.arange(count)))


def crop_by_hand(image: Tensor, row: int, column: int, mirrored: bool) -> Tensor:
    """As torchvision's RandomCrop with padding and RandomHorizontalFlip have it."""
    cut = functional.pad(image, (PADDING,) * 4)[:, row : row + image.shape[1], column : column + image.shape[2]]
    return cut.flip(-1) if mirrored else cut


def test_every_crop_is_the_part_it_says() -> None:
    """All 162 of them, byte for byte, each of another image."""
    given = images(CROPS)
    taken = crop_and_flip(given, torch.arange(CROPS, dtype=torch.uint8))
    expected = [
        crop_by_hand(given[2 * (row * OFFSETS + column) + mirrored], row, column, mirrored)
        for row in range(OFFSETS)
        for column in range(OFFSETS)
        for mirrored in (False, True)
    ]
    assert torch.equal(taken, torch.stack(expected))
    middle = 2 * (PADDING * OFFSETS + PADDING)
    assert torch.equal(crop_and_flip(given, torch.full((CROPS,), middle)), given)


def test_every_crop_is_as_likely_as_another() -> None:
    """Over 50,000 draws each of the 162 comes 309 times; six standard deviations of that are 105."""
    counts = source(50_000).crops(torch.arange(50_000), "1/0").long().bincount(minlength=CROPS)
    assert len(counts) == CROPS
    assert 309 - 105 < int(counts.min()) <= int(counts.max()) < 309 + 105


def test_a_draw_depends_on_seed_epoch_and_sample() -> None:
    """Not on what else is in the batch; from epoch to epoch and from seed to seed it changes."""
    cropping = source(400)
    entire, _ = cropping.drawn_batch(torch.arange(400), "1/0")
    some = torch.tensor([399, 7, 7, 0])
    assert torch.equal(source(400).drawn_batch(some, "1/0")[0], entire[some])
    for other in ("1/1", "2/0"):
        differing = (cropping.crops(torch.arange(400), other) != cropping.crops(torch.arange(400), "1/0")).float().mean()
        assert differing > 0.95


def test_ranks_and_loader_processes_change_nothing() -> None:
    """A global batch has the same crops whatever the number of ranks and of processes that read it."""

    def epoch(rank: int, ranks: int, workers: int) -> list[tuple[Tensor, Tensor]]:
        loader = TrainLoader(
            source(48), batch_size=24 // ranks, rank=rank, ranks=ranks, workers=workers, seed=5, pin_memory=False
        )
        return list(loader.epoch(1))

    single = epoch(0, 1, 0)
    parts = [epoch(rank, 3, workers) for rank, workers in ((0, 0), (1, 2), (2, 1))]
    assert len(single) == 2
    for step, (pixels, labels) in enumerate(single):
        assert torch.equal(torch.cat([part[step][1] for part in parts]), labels)
        assert torch.equal(torch.cat([part[step][0] for part in parts]), pixels)


def test_only_training_is_augmented(tmp_path: Path) -> None:
    """The key of a sweep crops the training split; evaluation has the images as they are."""
    write_cifar(tmp_path)
    plain, augmented = Data(name="cifar10"), Data(name="cifar10", augment="crop_flip")
    assert isinstance(open_source(augmented, "train", str(tmp_path)), CroppedSource)
    others: list[tuple[Data, Split]] = [(augmented, "eval"), (plain, "train"), (plain, "eval")]
    for data, split in others:
        assert type(open_source(data, split, str(tmp_path))) is TensorSource
