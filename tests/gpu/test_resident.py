"""Data sets that lie on the GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hpcddp.core.point import Data
from hpcddp.data.batches.loading import TrainLoader
from hpcddp.data.crop_flip import CROPS, CroppedSource, crop_and_flip
from hpcddp.data.resident import Places, ResidentData
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from tests.data.files import write_cifar
from tests.gpu import ranks
from tests.gpu.determinism import same_bits_every_time
from tests.gpu.marks import touches
from tests.worker import given


def gathers_the_same(samples: int) -> tuple[bool, bool]:
    """Whether crops, and a cropped epoch, have the bytes that they have on the CPU."""
    group = join(this_rank("local"), "cuda")
    images = given.cifar(CROPS).images
    crops = torch.arange(CROPS, dtype=torch.uint8)
    same_crops = torch.equal(crop_and_flip(images.to(group.device), crops).cpu(), crop_and_flip(images, crops))
    source = CroppedSource(given.cifar(samples))

    def loader(of: CroppedSource | Places) -> TrainLoader:
        return TrainLoader(of, batch_size=samples // 4, rank=0, ranks=1, workers=0, seed=1, pin_memory=False)

    data = ResidentData(source, group.device)
    pairs = zip(loader(Places(source)).epoch(1), loader(source).epoch(1), strict=True)
    same = [
        torch.equal(ours.cpu(), theirs) for places, batch in pairs for ours, theirs in zip(data.batch(places), batch, strict=True)
    ]
    group.leave()
    return same_crops, len(same) == 8 and all(same)


@touches("hpcddp/data/resident.py", "hpcddp/data/crop_flip.py", stand_in="everything is on the CPU")
def test_a_gpu_gathers_the_cpus_bytes(tmp_path: Path) -> None:
    """All crops there are, and an epoch of cropped batches."""
    assert ranks.values(tmp_path, 1, gathers_the_same, 320) == [(True, True)]


@pytest.mark.soak
@touches(
    "hpcddp/worker/training/resident_feed.py",
    "hpcddp/worker/training/feeds.py",
    stand_in="everything is on the CPU",
)
def test_trains_as_with_a_loader(tmp_path: Path) -> None:
    """The parameters at the end are bit for bit those of batches that a loader process read and that were copied."""
    write_cifar(tmp_path / "data")
    ends = []
    for resident in (False, True):
        data = Data(name="cifar10", root=str(tmp_path / "data"), augment="crop_flip", resident=resident)
        changes = {"model": "resnet18", "batch_per_gpu": 4, "warmup": 2, "steps": 6, "cudnn_benchmark": False}
        point = ranks.gpu_point(1, **changes, data=data, loader_workers_per_rank=int(not resident))
        attempt = ranks.run_point(tmp_path / str(resident), point, before=same_bits_every_time)
        attempt.check_done()
        ends.append((attempt.end["loss_first"], attempt.end["loss_last"]))
        assert ("resident_bytes" in attempt.launch["data"]) == resident
    assert ends[0] == ends[1]
