"""Every sample exactly once in an epoch, in one order whatever the number of ranks, for each form of data on disk."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcddp.core.point import Data
from hpcddp.data import Source, TrainLoader, open_source
from hpcddp.data.batches.loading import read_batch
from hpcddp.data.sampling import EpochOrder, Share, train_indices
from hpcddp.data.source import to_bytes
from hpcddp.data.writing.pack import pack_imagenet
from hpcddp.data.writing.prepare import prepare_bigmnist
from tests.data.digits import noise_digits
from tests.data.files import write_picture

BIGMNIST = 72_000_000
RANKS = (1, 2, 3, 7)
FORMS = ("shards", "virtual", "augmented", "tar")
VARIANTS = ("plain", "rotated")


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Source]:
    """A source of each form: 120 samples of digits in shards of 40, 14 pictures in tar files of 5."""
    folder = tmp_path_factory.mktemp("data")
    for name, copies in (("all", 3), ("one", 1)):
        digits = noise_digits(20, 3)
        prepare_bigmnist(
            folder / name, digits=digits, copies=copies, variants=VARIANTS, seed=1, progress=lambda *_: None, shard_samples=40
        )
    for split, count in (("train", 14), ("val", 1)):
        for number in range(count):
            write_picture(folder / "pictures" / split / "n0" / f"{number}.JPEG", (24, 20), seed=number)
    pack_imagenet(folder / "pictures", folder / "tar", progress=lambda *_: None, samples_per_shard=5)

    def source(form: str) -> Source:
        if form == "tar":
            return open_source(Data(name="imagenet"), "train", str(folder / "tar"))
        data = Data(name="bigmnist", copies=3, variants=VARIANTS, form=form)  # type: ignore[arg-type]
        return open_source(data, "train", str(folder / ("all" if form == "shards" else "one")))

    return source


@pytest.mark.dear
@pytest.mark.parametrize("ranks", RANKS)
def test_72_million_samples_come_once_on_any_number_of_ranks(ranks: int) -> None:
    """A bit for each sample: all that the ranks' steps read is different, and as much as fits whole global batches.

    The forms of bigMNIST have this order in common: each has a sample for every one of these numbers.
    """
    order, batch = EpochOrder(BIGMNIST, 1, 0), 2_000_000 // ranks
    steps = BIGMNIST // (batch * ranks)
    read = torch.zeros(BIGMNIST, dtype=torch.bool)
    for step in range(steps):
        for rank in range(ranks):
            read[train_indices(order, Share(batch, rank, ranks), range(step, step + 1))[0]] = True
    assert int(read.sum()) == steps * ranks * batch > BIGMNIST - batch * ranks


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.tuples(st.sampled_from(RANKS), st.integers(1, 2)),
    begin=st.tuples(st.integers(0, 2**40), st.integers(0, 100), st.integers(0, 1)),
)
def test_ranks_read_the_epochs_order_between_them(
    opened: Callable[[str], Source], form: str, shape: tuple[int, int], begin: tuple[int, int, int]
) -> None:
    """From whichever step on, and byte for byte what the source has at the order's samples; no sample twice."""
    (ranks, batch), (seed, epoch, first) = shape, begin
    source, steps = opened(form), slice(first, None)
    loaders = [
        TrainLoader(source, batch_size=batch, rank=rank, ranks=ranks, workers=0, seed=seed, pin_memory=False)
        for rank in range(ranks)
    ]
    count = len(source) // (ranks * batch) * ranks * batch
    order = EpochOrder(len(source), seed, epoch).samples_at(torch.arange(count))
    assert len(set(order.tolist())) == count
    epochs = [list(loader.epoch(epoch, first)) for loader in loaders]
    found = [part for step in zip(*epochs, strict=True) for part in step]
    expected = [read_batch(source, indices, f"{seed}/{epoch}") for indices in order.view(-1, ranks, batch)[steps].flatten(0, 1)]
    for (images, labels), (due_images, due_labels) in zip(found, expected, strict=True):
        assert torch.equal(images, due_images)
        assert torch.equal(labels, due_labels)


@pytest.mark.parametrize(
    ("samples", "seed", "epoch", "crc"),
    [
        (60_000, 1, 0, 2109566273),
        (1_281_167, 7, 3, 1037511687),
        (BIGMNIST, 1, 0, 2098936810),
        (BIGMNIST, 2, 5, 3975233213),
    ],
)
def test_the_order_is_what_it_always_was(samples: int, seed: int, epoch: int, crc: int) -> None:
    """Recorded before indices were one tensor: an epoch's last 60,000, so that runs that were begun before go on alike."""
    last = EpochOrder(samples, seed, epoch).samples_at(torch.arange(samples - 60_000, samples))
    assert zlib.crc32(to_bytes(last)) == crc
