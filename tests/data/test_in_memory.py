"""Data sets in memory: cropped and mirrored, and on the device where they are trained on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from hpcddp.core.catalog import CIFAR10
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Data
from hpcddp.core.point_rules import CROPPED, IN_MEMORY
from hpcddp.data import Batch, Source, TrainLoader, open_source
from hpcddp.data.in_memory import CROPS, OFFSETS, PADDING, CroppedSource, Places, ResidentData, crop_and_flip, resident_bytes
from hpcddp.data.opening import SyntheticSource
from hpcddp.data.small_sets import sklearn_digits
from hpcddp.data.source import Split, TensorSource
from hpcddp.data.writing.prepare import prepare_digits
from tests.data.files import write_cifar, write_mnist
from tests.worker import given

HERE = torch.device("cpu")


def images(count: int) -> Tensor:
    return torch.randint(256, (count, *CIFAR10.shape), generator=torch.Generator().manual_seed(3), dtype=torch.uint8)


def source(count: int) -> CroppedSource:
    return CroppedSource(TensorSource(CIFAR10, images(count), torch.arange(count)))


def crop_by_hand(image: Tensor, row: int, column: int, mirrored: bool) -> Tensor:
    """As torchvision's RandomCrop with padding and RandomHorizontalFlip have it."""
    cut = functional.pad(image, (PADDING,) * 4)[:, row : row + image.shape[1], column : column + image.shape[2]]
    return cut.flip(-1) if mirrored else cut


def check_crops(device: torch.device) -> None:
    """All 162 of them, byte for byte, each of another image."""
    of = images(CROPS)
    taken = crop_and_flip(of.to(device), torch.arange(CROPS, dtype=torch.uint8)).cpu()
    expected = [
        crop_by_hand(of[2 * (row * OFFSETS + column) + mirrored], row, column, mirrored)
        for row in range(OFFSETS)
        for column in range(OFFSETS)
        for mirrored in (False, True)
    ]
    assert torch.equal(taken, torch.stack(expected))


def test_every_crop_is_the_part_it_says() -> None:
    check_crops(HERE)
    of, middle = images(CROPS), 2 * (PADDING * OFFSETS + PADDING)
    assert torch.equal(crop_and_flip(of, torch.full((CROPS,), middle)), of)


def test_every_crop_is_as_likely_as_another() -> None:
    """Over 50,000 draws each of the 162 comes 309 times; six standard deviations of that are 105."""
    counts = source(50_000).crops(torch.arange(50_000), "1/0").long().bincount(minlength=CROPS)
    assert len(counts) == CROPS
    assert 309 - 105 < int(counts.min()) <= int(counts.max()) < 309 + 105


def test_a_draw_depends_on_seed_epoch_and_sample() -> None:
    cropping = source(400)
    entire, _ = cropping.drawn_batch(torch.arange(400), "1/0")
    some = torch.tensor([399, 7, 7, 0])
    assert torch.equal(source(400).drawn_batch(some, "1/0")[0], entire[some])
    for other in ("1/1", "2/0"):
        differing = (cropping.crops(torch.arange(400), other) != cropping.crops(torch.arange(400), "1/0")).float().mean()
        assert differing > 0.95


def test_ranks_and_loader_processes_change_nothing() -> None:
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
    write_cifar(tmp_path)
    plain, augmented = Data(name="cifar10"), Data(name="cifar10", augment="crop_flip")
    assert isinstance(open_source(augmented, "train", str(tmp_path)), CroppedSource)
    others: list[tuple[Data, Split]] = [(augmented, "eval"), (plain, "train"), (plain, "eval")]
    for data, split in others:
        assert type(open_source(data, split, str(tmp_path))) is TensorSource


def epoch(source: Source, workers: int, first_step: int = 0) -> list[Batch]:
    loader = TrainLoader(source, batch_size=6, rank=1, ranks=2, workers=workers, seed=4, pin_memory=False)
    return list(loader.epoch(2, first_step))


def check_batches(source: Source, device: torch.device, workers: int, first_step: int = 0) -> None:
    """Gathered there they are those of a loader: the same samples in the same order with the same crops."""
    data = ResidentData(source, device)
    gathered = [data.batch(places) for places in epoch(Places(source), 0, first_step)]
    loaded = epoch(source, workers, first_step)
    assert len(gathered) == len(loaded) == len(source) // 12 - first_step
    for ours, theirs in zip(gathered, loaded, strict=True):
        assert all(torch.equal(mine.cpu(), yours) for mine, yours in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("source", [given.cifar(50), CroppedSource(given.cifar(50))], ids=["plain", "cropped"])
@pytest.mark.parametrize("first_step", [0, 3])
def test_batches_are_those_of_loader_processes(source: Source, first_step: int) -> None:
    check_batches(source, HERE, 2, first_step)


def test_memory_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10 * 2**20, 80 * 2**30))
    with pytest.raises(HpcddpError, match=r"takes 12 MiB of GPU 3, where 10 MiB are free. Set workload.data.resident to false"):
        ResidentData(given.cifar(4000), torch.device("cuda", 3))


def test_what_it_takes_is_what_is_recorded() -> None:
    """Bytes of images and labels: 154 MB for CIFAR-10."""
    source = given.cifar(7)
    assert resident_bytes(CIFAR10.shape, 7) == source.images.nbytes + source.labels.nbytes
    assert resident_bytes(CIFAR10.shape, CIFAR10.train_samples) == 154_000_000


def test_only_data_in_memory_can_be_resident(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    write_cifar(tmp_path)
    prepare_digits(tmp_path, sklearn_digits())
    for name in IN_MEMORY:
        ResidentData(open_source(Data(name=name), "train", str(tmp_path)), HERE)
    for name in CROPPED:
        ResidentData(open_source(Data(name=name, augment="crop_flip"), "train", str(tmp_path)), HERE)
    with pytest.raises(HpcddpError, match="SyntheticSource cannot be held in memory"):
        ResidentData(SyntheticSource(CIFAR10, "train"), HERE)
