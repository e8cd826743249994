"""How many batches loader processes read ahead where memory is short."""

from __future__ import annotations

import pytest
import torch

from hpcddp.data import TrainLoader
from hpcddp.data.batches.prefetch import USUAL, batch_bytes, prefetch
from hpcddp.data.crop_flip import CroppedSource
from tests.worker import given

MIB = 2**20


@pytest.mark.parametrize(
    ("workers", "room_mib", "ahead", "is_cut"),
    [(4, 90, 2, False), (4, 89, 1, True), (4, 50, 1, True), (4, 49, 1, True), (0, 1, 2, False), (4, None, 2, False)],
)
def test_as_many_as_fit(workers: int, room_mib: int | None, ahead: int, is_cut: bool) -> None:
    """Of 10 MiB each: two by each of four processes and the one that is trained on are 90 MiB; one each 50, and never none."""
    found = prefetch(workers, 10 * MIB, None if room_mib is None else room_mib * MIB)
    assert (found.batches, found.cut is not None) == (ahead, is_cut)


def test_what_was_cut_is_a_sentence() -> None:
    """With the sizes; and where not even one each may fit, what to lower."""
    cut, short = (prefetch(4, 10 * MIB, room * MIB).cut for room in (60, 40))
    assert cut == (
        "2 batches of 10.0 MiB read ahead by each of 4 loader processes would take 90.0 MiB, and a rank has 60.0 MiB of memory "
        "for them: each reads 1 ahead"
    )
    assert short is not None
    assert short.endswith("which may not fit either: lower workload.loader_workers_per_rank or batch_per_gpu")


def test_cropped_images_are_bytes_as_they_were() -> None:
    """A user's own may be floating point: four times as many."""
    images = given.cifar(8)
    assert batch_bytes(CroppedSource(images), 16) == batch_bytes(images, 16) == 16 * 3 * 32 * 32


def test_a_loader_reads_that_many_ahead_and_gives_the_same() -> None:
    """Of batches of 16 images of MNIST's shape: 12.25 KiB."""
    source = given.mnist(64)
    size = batch_bytes(source, 16)
    usual, cut = (
        TrainLoader(source, batch_size=16, rank=0, ranks=1, workers=2, seed=1, pin_memory=False, room_bytes=room)
        for room in (5 * size, 4 * size)
    )
    assert size == 16 * 28 * 28
    assert (usual.prefetch.batches, cut.prefetch.batches) == (USUAL, 1)
    for wanted, found in zip(usual.epoch(0), cut.epoch(0), strict=True):
        assert torch.equal(wanted[1], found[1])
