from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcddp.core.catalog import MNIST
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Data
from hpcddp.data import TrainLoader, open_source
from hpcddp.data.bigmnist.forms import open_bigmnist
from hpcddp.data.bigmnist.manifest import Shard
from hpcddp.data.bigmnist.sharded_source import ShardedSource
from hpcddp.data.digits import Digits
from hpcddp.data.writing.prepare import prepare_bigmnist
from tests.data.digits import noise_digits

VARIANTS = ("plain", "flipped", "rotated")
DATA = Data(name="bigmnist", copies=4, variants=VARIANTS)


@pytest.fixture
def digits() -> Digits:
    return noise_digits(50, 9)


@pytest.fixture
def root(tmp_path: Path, digits: Digits) -> Path:
    """4 copies x 3 variants x 50 digits in shards of 3 blocks: 150 samples."""
    prepare_bigmnist(
        tmp_path, digits=digits, copies=4, variants=VARIANTS, seed=1, progress=lambda done, total: None, shard_samples=170
    )
    return tmp_path


def test_samples_lie_copy_by_copy_variant_by_variant(root: Path, digits: Digits) -> None:
    """Sample (copy * variants + variant) * digits + digit, across shards; length from the manifest, not the catalog."""
    source = open_source(DATA, "train", str(root))
    images, labels = source.batch(torch.tensor([copy * 150 + variant * 50 + 7 for copy in range(4) for variant in range(3)]))
    assert (len(source), source.shape, source.classes, source.mean) == (600, (1, 28, 28), 10, MNIST.mean)
    assert labels.tolist() == [int(digits.train_labels[7])] * 12
    plain, flipped, rotated = images[0::3], images[1::3], images[2::3]
    assert all(torch.equal(image, digits.train_images[7]) for image in plain)
    assert all(torch.equal(image, digits.train_images[7].flip(-1)) for image in flipped)
    assert len({bytes(image.flatten().tolist()) for image in rotated}) == 4


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(indices=st.lists(st.integers(0, 599), min_size=1, max_size=80))
def test_a_batch_is_its_samples_in_the_order_asked_for(root: Path, indices: list[int]) -> None:
    """Whatever shards they lie in, repeated ones too: equal to reading the files as bytes."""
    images, labels = open_source(DATA, "train", str(root)).batch(torch.tensor(indices))
    pixels = b"".join((root / f"train-{number:05d}.u8").read_bytes() for number in range(4))
    classes = b"".join((root / f"train-{number:05d}.labels.u8").read_bytes() for number in range(4))
    assert (images.dtype, labels.dtype) == (torch.uint8, torch.int64)
    assert bytes(images.flatten().tolist()) == b"".join(pixels[index * 784 : (index + 1) * 784] for index in indices)
    assert labels.tolist() == [classes[index] for index in indices]


def test_a_short_last_shard_is_read(tmp_path: Path) -> None:
    """Shards of 4, 4 and 1 samples."""
    shards = [Shard(f"train-{number}", samples) for number, samples in enumerate((4, 4, 1))]
    for number, shard in enumerate(shards):
        shard.images(tmp_path).write_bytes(bytes([number]) * shard.samples * 784)
        shard.labels(tmp_path).write_bytes(bytes([number]) * shard.samples)
    source = ShardedSource(tmp_path, shards)
    assert len(source) == 9
    assert source.batch(torch.tensor([8, 0, 4, 7]))[1].tolist() == [2, 0, 1, 1]


def test_workers_read_the_same(root: Path) -> None:
    """Maps are opened by each worker for itself; a whole epoch holds every sample."""
    read = []
    for workers in (0, 2):
        source = open_source(DATA, "train", str(root))
        loader = TrainLoader(source, batch_size=60, rank=0, ranks=1, workers=workers, seed=2, pin_memory=False)
        read.append([images for images, _ in loader.epoch(0)])
    assert all(torch.equal(first, second) for first, second in zip(*read, strict=True))
    everything = open_source(DATA, "train", str(root)).batch(torch.arange(600))[0]
    assert torch.equal(torch.cat(read[0]).flatten(1).sum(dim=1).sort().values, everything.flatten(1).sum(dim=1).sort().values)


def test_evaluation_digits_are_as_they_were(root: Path, digits: Digits) -> None:
    """Unaugmented, in order."""
    source = open_source(DATA, "eval", str(root))
    images, labels = source.batch(torch.arange(9))
    assert len(source) == 9
    assert torch.equal(images, digits.eval_images)
    assert torch.equal(labels, digits.eval_labels)


def test_reading_never_writes(root: Path) -> None:
    """A batch is the reader's own: changing it changes neither the files nor the next batch."""
    before = (root / "train-00000.u8").read_bytes()
    source = open_source(DATA, "train", str(root))
    source.batch(torch.tensor([0, 1]))[0].fill_(77)
    assert (root / "train-00000.u8").read_bytes() == before
    assert not bool((source.batch(torch.tensor([0]))[0] == 77).all())


def test_a_shard_lost_while_reading_is_not_made_up(root: Path) -> None:
    """A map of a missing file is an error that names it, never a new file of zeros."""
    source = open_source(DATA, "train", str(root))
    (root / "train-00001.u8").unlink()
    with pytest.raises(RuntimeError, match=r"train-00001\.u8"):
        source.batch(torch.tensor([200]))
    assert not (root / "train-00001.u8").exists()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (Data(name="bigmnist", copies=200, variants=VARIANTS), "data.copies is 200, but the bigMNIST in .* with copies = 4"),
        (Data(name="bigmnist", copies=4), "data.variants is plain, rotated, .* with variants = plain, flipped, rotated: change"),
    ],
)
def test_other_content_than_the_point_asks_for_is_refused(root: Path, data: Data, sentence: str) -> None:
    """The error says what is asked for and what is there."""
    with pytest.raises(HpcddpError, match=sentence):
        open_source(data, "train", str(root))


def test_what_is_not_prepared_says_how_to(tmp_path: Path) -> None:
    """Missing and unfinished folders name the command that makes what the point asks for."""
    command = (
        f"run `hpcddp data prepare bigmnist --root {tmp_path} --copies 4 --variants plain,flipped,rotated` "
        "on the login node, with a Python that has torch"
    )
    with pytest.raises(HpcddpError, match=f"no bigMNIST .bigmnist.json. in {tmp_path}: {command}"):
        open_bigmnist(DATA, tmp_path, "train")
    (tmp_path / "bigmnist.json.part").touch()
    with pytest.raises(HpcddpError, match=f"bigMNIST is not finished in {tmp_path}: {command}"):
        open_bigmnist(DATA, tmp_path, "train")


@pytest.mark.parametrize("damage", ["missing", "cut"])
@pytest.mark.parametrize("name", ["train-00002.u8", "train-00002.labels.u8"])
def test_a_damaged_shard_is_named(root: Path, name: str, damage: str) -> None:
    """A copy that stopped half-way is noticed when the job starts, not when a sample is read."""
    content = (root / name).read_bytes()
    (root / name).unlink()
    if damage == "cut":
        (root / name).write_bytes(content[:-1])
    with pytest.raises(HpcddpError, match=r"train-00002.u8 or its labels are missing or cut short in .*it keeps what is whole"):
        open_source(DATA, "train", str(root))


@pytest.mark.parametrize("change", [{"schema": 2}, {"copies": 0}, {"unheard": 1}])
def test_a_manifest_of_another_kind_is_refused(root: Path, change: dict[str, int]) -> None:
    """Another schema, impossible values, unknown keys, broken JSON."""
    path = root / "bigmnist.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(HpcddpError, match=r"bigmnist.json is (no manifest that this version reads|of a newer version of hpcddp)"):
        open_source(DATA, "train", str(root))
    path.write_text("{")
    with pytest.raises(HpcddpError, match=r"bigmnist.json cannot be read as a manifest"):
        open_source(DATA, "train", str(root))
