"""bigMNIST on disk and in its three forms: every sample is what its number says, and what lacks is said."""

from __future__ import annotations

import os
import shutil
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcddp.core.catalog import MNIST
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Data
from hpcddp.data import Source, TrainLoader, open_source, sampling
from hpcddp.data.bigmnist import shards as bigmnist_shards
from hpcddp.data.bigmnist.augment import flip
from hpcddp.data.bigmnist.forms import AugmentedSource
from hpcddp.data.bigmnist.shards import Shard, ShardedSource
from hpcddp.data.source import Batch, DrawnSource
from hpcddp.data.writing.prepare import prepare_bigmnist
from tests.data.files import noise_digits

VARIANTS = ("flipped", "plain", "rotated", "elastic")
COPIES, PREPARED, DIGITS = 200, 4, 30
COPY = len(VARIANTS) * DIGITS
OF_NOISE = noise_digits(DIGITS, 9)


def prepare(folder: Path, copies: int = PREPARED, variants: tuple[str, ...] = VARIANTS, shard_samples: int = 2 * DIGITS) -> Path:
    options = {"digits": OF_NOISE, "copies": copies, "variants": variants, "shard_samples": shard_samples}
    prepare_bigmnist(folder, seed=1, progress=lambda *_: None, **options)  # type: ignore[arg-type]
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four copies, in shards of two variants each: eight of 60 samples."""
    return prepare(tmp_path_factory.mktemp("bigmnist"))


@pytest.fixture
def own(root: Path, tmp_path: Path) -> Path:
    """The same, to be harmed."""
    return shutil.copytree(root, tmp_path / "own")


def opened(form: str, root: Path, split: Any = "train", **changes: Any) -> Source:
    copies = PREPARED if form == "shards" else COPIES
    data = Data(**{"name": "bigmnist", "copies": copies, "variants": VARIANTS, "form": form, **changes})
    return open_source(data, split, str(root))


def test_samples_lie_copy_by_copy_variant_by_variant(root: Path) -> None:
    source = opened("shards", root)
    images, labels = source.batch(torch.tensor([block * DIGITS + 7 for block in range(PREPARED * len(VARIANTS))]))
    assert (len(source), source.shape, source.classes, source.mean) == (PREPARED * COPY, (1, 28, 28), 10, MNIST.mean)
    assert labels.tolist() == [7] * 16
    assert all(torch.equal(image, OF_NOISE.train_images[7].flip(-1)) for image in images[0::4])
    assert all(torch.equal(image, OF_NOISE.train_images[7]) for image in images[1::4])
    assert len({bytes(image.flatten().tolist()) for image in images[2::4]}) == PREPARED


@settings(max_examples=50)
@given(indices=st.lists(st.integers(0, PREPARED * COPY - 1), min_size=1, max_size=80))
def test_a_batch_is_its_samples_in_the_order_asked_for(root: Path, indices: list[int]) -> None:
    """Whatever shards they lie in, repeated ones too: equal to reading the files as bytes."""
    images, labels = opened("shards", root).batch(torch.tensor(indices))
    pixels = b"".join((root / f"train-{number:05d}.u8").read_bytes() for number in range(8))
    classes = b"".join((root / f"train-{number:05d}.labels.u8").read_bytes() for number in range(8))
    assert (images.dtype, labels.dtype) == (torch.uint8, torch.int64)
    assert bytes(images.flatten().tolist()) == b"".join(pixels[index * 784 : (index + 1) * 784] for index in indices)
    assert labels.tolist() == [classes[index] for index in indices]


def test_a_virtual_sample_is_that_of_the_copy_on_disk(root: Path) -> None:
    """Sample i is sample i modulo the copy's length; all `copies` times as many can be asked for."""
    source, on_disk = opened("virtual", root), opened("shards", root)
    assert len(source) == COPIES * COPY
    indices = torch.tensor([0, COPY, 7 * COPY + 63, COPIES * COPY - 1])
    for ours, theirs in zip(source.batch(indices), on_disk.batch(indices % COPY), strict=True):
        assert torch.equal(ours, theirs)


def test_an_augmented_sample_is_its_digit_in_its_variant(root: Path) -> None:
    source = opened("augmented", root)
    assert len(source) == COPIES * COPY
    images, labels = source.batch(torch.arange(3 * COPY, 4 * COPY))
    assert labels.tolist() == OF_NOISE.train_labels.tolist() * len(VARIANTS)
    flipped, plain, rotated, elastic = images.view(4, DIGITS, 1, 28, 28)
    assert torch.equal(plain, OF_NOISE.train_images)
    assert torch.equal(flipped, flip(OF_NOISE.train_images))
    assert not any(torch.equal(changed, OF_NOISE.train_images) for changed in (rotated, elastic))


def test_augmentation_depends_on_seed_epoch_and_sample_alone(root: Path) -> None:
    source = opened("augmented", root)
    assert isinstance(source, AugmentedSource)
    assert isinstance(source, DrawnSource)
    rotated = 2 * DIGITS + 5
    found = source.drawn_batch(torch.tensor([3, rotated, COPY + rotated, 1]), "1/0")[0]
    assert torch.equal(source.drawn_batch(torch.tensor([rotated]), "1/0")[0][0], found[1])
    assert not torch.equal(source.drawn_batch(torch.tensor([rotated]), "1/1")[0][0], found[1])
    assert not torch.equal(found[2], found[1])


@pytest.mark.parametrize("form", ["shards", "virtual", "augmented"])
def test_evaluation_is_unaugmented_in_every_form(root: Path, form: str) -> None:
    source = opened(form, root, "eval")
    images, labels = source.batch(torch.arange(9))
    assert len(source) == 9
    assert torch.equal(images, OF_NOISE.eval_images)
    assert torch.equal(labels, OF_NOISE.eval_labels)


@pytest.mark.parametrize(
    ("form", "copies", "variants"),
    [("shards", 4, "flipped,plain,rotated,elastic"), ("virtual", 1, "flipped,plain,rotated,elastic"), ("augmented", 1, "plain")],
)
def test_what_is_not_prepared_says_how_to(tmp_path: Path, form: str, copies: int, variants: str) -> None:
    """virtual needs one copy of its variants, augmented the digits themselves."""
    command = f"run `hpcddp data prepare bigmnist --root {tmp_path} --copies {copies} --variants {variants}` on the login node"
    with pytest.raises(HpcddpError, match=f"no bigMNIST .bigmnist.json. in {tmp_path}: {command}, with a Python that has torch"):
        opened(form, tmp_path)
    (tmp_path / "bigmnist.json.part").touch()
    with pytest.raises(HpcddpError, match=f"bigMNIST is not finished in {tmp_path}: {command}"):
        opened(form, tmp_path)


def test_other_content_than_the_point_asks_for_is_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(HpcddpError, match=r"data.copies is 200, but the bigMNIST in .* with copies = 4: change"):
        opened("shards", root, copies=200)
    with pytest.raises(HpcddpError, match=r"data.variants is plain, but .* variants = flipped, plain, rotated, elastic"):
        opened("virtual", root, variants=("plain",))
    assert len(opened("augmented", root, variants=("elastic",))) == COPIES * DIGITS
    with pytest.raises(HpcddpError, match=r"starts from the variant plain, but .* variants = flipped: prepare another folder"):
        opened("augmented", prepare(tmp_path, copies=1, variants=("flipped",)))


def test_only_the_shards_that_a_form_reads_must_be_there(tmp_path: Path) -> None:
    """The first copy's; of a full set that is being copied, the others may still be missing."""
    prepare(tmp_path, copies=3, variants=("plain",), shard_samples=30)
    (tmp_path / "train-00002.u8").unlink()
    assert len(opened("virtual", tmp_path, variants=("plain",))) == COPIES * DIGITS
    with pytest.raises(HpcddpError, match=r"train-00002.u8 or its labels are missing"):
        opened("shards", tmp_path, variants=("plain",), copies=3)
    (tmp_path / "train-00000.u8").write_bytes(b"")
    with pytest.raises(HpcddpError, match=r"train-00000.u8 or its labels are missing"):
        opened("augmented", tmp_path)


@pytest.mark.parametrize("damage", ["missing", "cut"])
@pytest.mark.parametrize("name", ["train-00002.u8", "train-00002.labels.u8"])
def test_a_damaged_shard_is_named(own: Path, name: str, damage: str) -> None:
    """A copy that stopped half-way is noticed when the job starts, not when a sample is read."""
    content = (own / name).read_bytes()
    (own / name).unlink()
    if damage == "cut":
        (own / name).write_bytes(content[:-1])
    with pytest.raises(HpcddpError, match=r"train-00002.u8 or its labels are missing or cut short in .*intact files stay"):
        opened("shards", own)


def test_reading_never_writes(own: Path) -> None:
    """A batch is the reader's own: changing it changes neither the files nor the next batch."""
    before, source = (own / "train-00000.u8").read_bytes(), opened("shards", own)
    source.batch(torch.tensor([0, 1]))[0].fill_(77)
    assert (own / "train-00000.u8").read_bytes() == before
    assert not bool((source.batch(torch.tensor([0]))[0] == 77).all())


def test_a_shard_lost_while_reading_is_not_made_up(own: Path) -> None:
    """A map of a missing file is an error that names it, never a new file of zeros."""
    source = opened("shards", own)
    (own / "train-00001.u8").unlink()
    with pytest.raises(RuntimeError, match=r"train-00001\.u8"):
        source.batch(torch.tensor([70]))
    assert not (own / "train-00001.u8").exists()


def test_a_short_last_shard_is_read(tmp_path: Path) -> None:
    shards = [Shard(f"train-{number}", samples) for number, samples in enumerate((4, 4, 1))]
    for number, shard in enumerate(shards):
        shard.images(tmp_path).write_bytes(bytes([number]) * shard.samples * 784)
        shard.labels(tmp_path).write_bytes(bytes([number]) * shard.samples)
    source = ShardedSource(tmp_path, shards)
    assert len(source) == 9
    assert source.batch(torch.tensor([8, 0, 4, 7]))[1].tolist() == [2, 0, 1, 1]


PER_SHARD, SHARDS = 400, 3


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShardedSource:
    """1,200 samples in an order of runs of 19; image i has the bytes of i, and its label is i % 251."""
    monkeypatch.setattr(sampling, "MOST_BLOCKS_LOG2", 6)
    shards = [Shard(f"train-{number}", PER_SHARD) for number in range(SHARDS)]
    for number, shard in enumerate(shards):
        samples = torch.arange(number * PER_SHARD, (number + 1) * PER_SHARD)
        shard.images(tmp_path).write_bytes(b"".join(sample.to_bytes(4, "little") * 196 for sample in samples.tolist()))
        shard.labels(tmp_path).write_bytes(bytes((samples % 251).tolist()))
    return ShardedSource(tmp_path, shards)


def samples_in(batch: Batch) -> list[int]:
    """Which samples the batch holds, all their pixels and labels having been compared."""
    images, labels = batch
    numbers = images.view(len(labels), 784).view(torch.int32)
    assert bool((numbers == numbers[:, :1]).all())
    assert torch.equal(numbers[:, 0].long() % 251, labels)
    return numbers[:, 0].tolist()


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_has_each_sample_once_however_it_is_read(
    source: ShardedSource, monkeypatch: pytest.MonkeyPatch, cached: bool, workers: int
) -> None:
    if not cached:
        monkeypatch.setattr(bigmnist_shards, "_NO_WAIT", 0)
    assert source.samples_ahead > 0
    loader = TrainLoader(source, batch_size=100, rank=0, ranks=1, workers=workers, seed=1, pin_memory=False)
    order = sampling.EpochOrder(1200, 1, 3).samples_at(torch.arange(1200)).tolist()
    left = loader.epoch(0)
    next(left)
    assert [sample for batch in loader.epoch(3) for sample in samples_in(batch)] == order
    assert [sample for batch in loader.epoch(3, 5) for sample in samples_in(batch)] == order[500:]


def test_runs_end_at_shards_and_may_have_any_length(source: ShardedSource) -> None:
    for indices in ([*range(390, 410), *range(795, 805), *range(20)], [7], [1199, 3, 3, 800, 401], list(range(1200))):
        assert samples_in(source.batch(torch.tensor(indices))) == indices


def test_a_file_cut_short_while_it_is_read_is_said(source: ShardedSource, tmp_path: Path) -> None:
    file = tmp_path / "train-1.u8"
    file.write_bytes(file.read_bytes()[: 784 * 100])
    with pytest.raises(HpcddpError, match=r"train-1.u8 ends before byte 94,080: it is truncated"):
        source.batch(torch.arange(480, 520))


def test_labels_are_read_once_for_all_processes(source: ShardedSource, tmp_path: Path) -> None:
    """When the source is opened: 72 MB that each loader process would have of its own."""
    for file in tmp_path.glob("*.labels.u8"):
        file.unlink()
    loader = TrainLoader(source, batch_size=100, rank=0, ranks=1, workers=2, seed=1, pin_memory=False)
    assert sorted(sample for batch in loader.epoch(0) for sample in samples_in(batch)) == list(range(1200))


def test_labels_cut_short_are_said(source: ShardedSource, tmp_path: Path) -> None:
    file = tmp_path / "train-1.labels.u8"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(HpcddpError, match=r"train-1.labels.u8 ends before byte 400: it is truncated"):
        ShardedSource(tmp_path, source._shards)


def test_what_was_read_from_is_closed_with_its_source(source: ShardedSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bigmnist_shards, "_NO_WAIT", 0)
    monkeypatch.setattr(bigmnist_shards, "READS_AT_ONCE", 1)
    first = source.batch(torch.arange(20))  # threads are there, and labels are read
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        again = ShardedSource(source._root, source._shards)
        again.batch(torch.arange(1200).view(3, 20, 20).transpose(0, 1).flatten())
    held = weakref.ref(again._reads)
    del first, again
    for _ in range(100):
        if held() is None:
            break
        time.sleep(0.01)
    assert held() is None
    assert len(os.listdir("/proc/self/fd")) <= before
