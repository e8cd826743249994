"""virtual and augmented: what they read, what they need, and that every sample is what its number says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Data
from hpcddp.data import Source, TrainLoader, open_source
from hpcddp.data.bigmnist.augment import flip
from hpcddp.data.bigmnist.forms import AugmentedSource
from hpcddp.data.digits import Digits
from hpcddp.data.source import DrawnSource
from hpcddp.data.writing.prepare import prepare_bigmnist
from tests.data.digits import noise_digits

VARIANTS = ("flipped", "plain", "rotated", "elastic")
COPIES, DIGITS = 200, 30
COPY = len(VARIANTS) * DIGITS


def data(form: str, **changes: Any) -> Data:
    return Data(**{"name": "bigmnist", "copies": COPIES, "variants": VARIANTS, "form": form, **changes})


@pytest.fixture(scope="module")
def digits() -> Digits:
    return noise_digits(DIGITS, 9)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, digits: Digits) -> Path:
    """One copy, in shards of two variants each."""
    folder = tmp_path_factory.mktemp("bigmnist")
    prepare_bigmnist(folder, digits=digits, copies=1, variants=VARIANTS, seed=1, progress=lambda *_: None, shard_samples=60)
    return folder


def opened(form: str, root: Path, split: Any = "train", **changes: Any) -> Source:
    return open_source(data(form, **changes), split, str(root))


def test_a_virtual_sample_is_that_of_the_copy_on_disk(root: Path) -> None:
    """Sample i is sample i modulo the copy's length; all `copies` times as many can be asked for."""
    source, copy = opened("virtual", root), opened("shards", root, copies=1)
    assert (len(source), len(copy)) == (COPIES * COPY, COPY)
    indices = torch.tensor([0, COPY, 7 * COPY + 63, COPIES * COPY - 1])
    images, labels = source.batch(indices)
    expected = copy.batch(indices % COPY)
    assert torch.equal(images, expected[0])
    assert torch.equal(labels, expected[1])


def test_an_augmented_sample_is_its_digit_in_its_variant(root: Path, digits: Digits) -> None:
    """Sample [copy][variant][digit]: digits as they are, mirrored, or changed, with their labels."""
    source = opened("augmented", root)
    assert len(source) == COPIES * COPY
    images, labels = source.batch(torch.arange(3 * COPY, 4 * COPY))
    assert labels.tolist() == digits.train_labels.tolist() * len(VARIANTS)
    flipped, plain, rotated, elastic = images.view(4, DIGITS, 1, 28, 28)
    assert torch.equal(plain, digits.train_images)
    assert torch.equal(flipped, flip(digits.train_images))
    assert not any(torch.equal(changed, digits.train_images) for changed in (rotated, elastic))


def test_augmentation_depends_on_seed_epoch_and_sample_alone(root: Path) -> None:
    """Equal words and sample give equal pixels in whatever batch; another epoch, copy or sample gives others."""
    source = opened("augmented", root)
    assert isinstance(source, AugmentedSource)
    assert isinstance(source, DrawnSource)
    rotated = 2 * DIGITS + 5
    found = source.drawn_batch(torch.tensor([3, rotated, COPY + rotated, 1]), "1/0")[0]
    assert torch.equal(source.drawn_batch(torch.tensor([rotated]), "1/0")[0][0], found[1])
    assert not torch.equal(source.drawn_batch(torch.tensor([rotated]), "1/1")[0][0], found[1])
    assert not torch.equal(found[2], found[1])


@pytest.mark.parametrize("form", ["virtual", "augmented"])
def test_loader_processes_give_the_same_batches(root: Path, form: str) -> None:
    """What the rank reads itself and what two processes read is equal, epoch after epoch, and two epochs differ."""
    epochs = []
    for workers in (0, 2):
        source = opened(form, root, copies=2)
        loader = TrainLoader(source, batch_size=50, rank=0, ranks=1, workers=workers, seed=4, pin_memory=False)
        epochs.append([list(loader.epoch(0)), list(loader.epoch(1))])
    for direct, forked in zip(*epochs, strict=True):
        assert len(direct) == 4
        assert all(torch.equal(a, b) for one, two in zip(direct, forked, strict=True) for a, b in zip(one, two, strict=True))
    assert not torch.equal(epochs[0][0][0][1], epochs[0][1][0][1])


def test_evaluation_is_the_same_in_every_form(root: Path, digits: Digits) -> None:
    """Unaugmented digits."""
    for form in ("virtual", "augmented"):
        assert torch.equal(opened(form, root, "eval").batch(torch.arange(9))[0], digits.eval_images)


def test_what_a_form_lacks_is_said_with_the_command(tmp_path: Path, root: Path) -> None:
    """virtual needs one copy of its variants, augmented the digits themselves; more copies than needed do no harm."""
    command = f"`hpcddp data prepare bigmnist --root {tmp_path} --copies 1 --variants"
    for form, variants in (("virtual", "flipped,plain,rotated,elastic"), ("augmented", "plain")):
        with pytest.raises(HpcddpError, match=f"no bigMNIST .* {command} {variants}` on the login node"):
            opened(form, tmp_path)
    with pytest.raises(HpcddpError, match=r"data.copies is 200, but the bigMNIST in .* with copies = 1"):
        opened("shards", root)
    with pytest.raises(HpcddpError, match=r"data.variants is plain, but .* variants = flipped, plain, rotated, elastic"):
        opened("virtual", root, variants=("plain",))
    assert len(opened("augmented", root, variants=("elastic",))) == COPIES * DIGITS
    bare = noise_digits(4, 2)
    prepare_bigmnist(tmp_path, digits=bare, copies=1, variants=("flipped",), seed=1, progress=lambda *_: None)
    with pytest.raises(HpcddpError, match=r"starts from the variant plain, but .* variants = flipped: prepare another folder"):
        opened("augmented", tmp_path)


def test_only_the_shards_that_a_form_reads_must_be_there(tmp_path: Path, digits: Digits) -> None:
    """The first copy's; of a full set that is being copied, the others may still be missing."""
    prepare_bigmnist(tmp_path, digits=digits, copies=3, variants=("plain",), seed=1, progress=lambda *_: None, shard_samples=30)
    (tmp_path / "train-00002.u8").unlink()
    assert len(opened("virtual", tmp_path, variants=("plain",))) == COPIES * DIGITS
    with pytest.raises(HpcddpError, match=r"train-00002.u8 or its labels are missing"):
        opened("shards", tmp_path, variants=("plain",), copies=3)
    (tmp_path / "train-00000.u8").write_bytes(b"")
    with pytest.raises(HpcddpError, match=r"train-00000.u8 or its labels are missing"):
        opened("augmented", tmp_path)
