"""A data set on its device gives the batches that loaders give."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from hpcddp.core.catalog import CIFAR10
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Data
from hpcddp.core.point_rules import CROPPED, IN_MEMORY
from hpcddp.data import Batch, Source, TrainLoader, open_source
from hpcddp.data.crop_flip import CroppedSource
from hpcddp.data.digits import sklearn_digits
from hpcddp.data.opening import SyntheticSource
from hpcddp.data.resident import Places, ResidentData, resident_bytes
from hpcddp.data.writing.prepare import prepare_digits
from tests.data.files import write_cifar, write_mnist
from tests.worker import given

HERE = torch.device("cpu")


def epoch(source: Source, workers: int, first_step: int = 0) -> list[Batch]:
    loader = TrainLoader(source, batch_size=6, rank=1, ranks=2, workers=workers, seed=4, pin_memory=False)
    return list(loader.epoch(2, first_step))


@pytest.mark.parametrize("source", [given.cifar(50), CroppedSource(given.cifar(50))], ids=["plain", "cropped"])
@pytest.mark.parametrize("first_step", [0, 3])
def test_batches_are_those_of_loader_processes(source: Source, first_step: int) -> None:
    """The same samples in the same order with the same crops, from the middle of an epoch, too."""
    data = ResidentData(source, HERE)
    gathered = [data.batch(places) for places in epoch(Places(source), 0, first_step)]
    loaded = epoch(source, 2, first_step)
    assert len(gathered) == len(loaded) == 4 - first_step
    for ours, theirs in zip(gathered, loaded, strict=True):
        assert all(torch.equal(mine, yours) for mine, yours in zip(ours, theirs, strict=True))


def test_memory_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU whose memory another took gets none of it; the error says how much is missing, and what to set."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10 * 2**20, 80 * 2**30))
    with pytest.raises(HpcddpError, match=r"takes 12 MiB of GPU 3, where 10 MiB are free: set workload.data.resident to false"):
        ResidentData(given.cifar(4000), torch.device("cuda", 3))


def test_what_it_takes_is_what_is_recorded() -> None:
    """Bytes of images and labels: 154 MB for CIFAR-10."""

    def size(tensor: Tensor) -> int:
        return tensor.numel() * tensor.element_size()

    source = given.cifar(7)
    assert resident_bytes(CIFAR10.shape, 7) == size(source.images) + size(source.labels)
    assert resident_bytes(CIFAR10.shape, CIFAR10.train_samples) == 154_000_000


def test_only_data_in_memory_can_be_resident(tmp_path: Path) -> None:
    """Those that the rules of a point allow; no other source."""
    write_mnist(tmp_path)
    write_cifar(tmp_path)
    prepare_digits(tmp_path, sklearn_digits())
    for name in IN_MEMORY:
        ResidentData(open_source(Data(name=name), "train", str(tmp_path)), HERE)
    for name in CROPPED:
        ResidentData(open_source(Data(name=name, augment="crop_flip"), "train", str(tmp_path)), HERE)
    with pytest.raises(HpcddpError, match="SyntheticSource are not held in memory"):
        ResidentData(SyntheticSource(CIFAR10, "train"), HERE)
