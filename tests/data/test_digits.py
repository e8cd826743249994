"""Digits for bigMNIST, and those in CIFAR-10's shape: what is prepared is what is read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from hpcddp.cli import main
from hpcddp.core.catalog import DIGITS
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Data
from hpcddp.data import Source, open_source
from hpcddp.data.digits import Digits, find_digits, official_digits, open_digits, sklearn_digits
from hpcddp.data.source import Split
from hpcddp.data.writing.prepare import prepare_digits
from tests.data.digits import noise_digits
from tests.data.files import write_mnist


def counts(digits: Digits) -> tuple[int, int]:
    return len(digits.train_labels), len(digits.eval_labels)


def test_sklearns_digits_are_split_and_scaled() -> None:
    """1,797 real digits: one in six for evaluation, 28 x 28, 0..255; the brightest stays bright, the corner dark."""
    digits = sklearn_digits()
    assert counts(digits) == (1498, 299)
    assert digits.train_images.shape == (1498, 1, 28, 28)
    assert (digits.train_images.dtype, digits.train_labels.dtype) == (torch.uint8, torch.int64)
    assert int(digits.train_images.max()) == 255
    assert int(digits.train_images[:, 0, 0, 0].max()) < 100
    assert digits.train_labels[:7].tolist() == [0, 1, 2, 3, 4, 6, 7]
    assert digits.eval_labels[0] == 5
    assert set(digits.eval_labels.tolist()) == set(range(10))


def test_official_digits_are_mnists_files(tmp_path: Path) -> None:
    """Train and t10k; the message says how many and from where."""
    write_mnist(tmp_path)
    digits = official_digits(tmp_path)
    assert (counts(digits), digits.source) == ((20, 7), "mnist")
    assert digits.message == f"digits: MNIST's own 20 from {tmp_path}"


def test_auto_takes_mnist_where_it_is(tmp_path: Path) -> None:
    """Else scikit-learn's, and says that they are not MNIST."""
    assert find_digits("auto", tmp_path).message.endswith("upscaled to 28 x 28; not MNIST")
    assert find_digits("auto", None).source == "sklearn"
    write_mnist(tmp_path / "MNIST" / "raw", packed=True)
    assert find_digits("auto", tmp_path).source == "mnist"
    assert find_digits("sklearn", tmp_path).source == "sklearn"


def test_mnist_asked_for_must_be_there(tmp_path: Path) -> None:
    """No silent fallback."""
    with pytest.raises(HpcddpError, match="no train-images-idx3-ubyte"):
        find_digits("mnist", tmp_path)
    with pytest.raises(HpcddpError, match="need the folder"):
        find_digits("mnist", None)


def test_the_checksum_tells_digits_apart(tmp_path: Path) -> None:
    """One pixel or one label more, in training or evaluation, changes it."""
    write_mnist(tmp_path)
    before = official_digits(tmp_path)
    for name in ("train_images", "train_labels", "eval_images", "eval_labels"):
        changed = official_digits(tmp_path)
        tensor = getattr(changed, name).view(-1)
        tensor[3] = 9 - tensor[3] % 9
        assert changed.sha256 != before.sha256
    assert official_digits(tmp_path).sha256 == before.sha256


def all_of(source: Source) -> tuple[torch.Tensor, torch.Tensor]:
    return source.batch(torch.arange(len(source)))


def test_prepared_digits_are_the_catalogs(tmp_path: Path) -> None:
    """As many as the catalog says, with its statistics; the command says that they are not CIFAR-10."""
    done = CliRunner().invoke(main, ["data", "prepare", "digits", "--root", str(tmp_path)])
    assert done.stdout == f"1,797 digits of scikit-learn's in {tmp_path}, 3 x 32 x 32; not CIFAR-10\n"
    samples: dict[Split, int] = {"train": DIGITS.train_samples, "eval": DIGITS.eval_samples}
    for split, number in samples.items():
        source = open_source(Data(name="digits"), split, str(tmp_path))
        assert (len(source), source.shape, source.classes) == (number, DIGITS.shape, DIGITS.classes)
    pixels = all_of(open_digits(tmp_path, "train"))[0].double() / 255
    assert [round(float(pixels[:, channel].mean()), 4) for channel in range(3)] == list(DIGITS.mean)
    assert [round(float(pixels[:, channel].std()), 4) for channel in range(3)] == list(DIGITS.std)


def test_a_digit_is_the_same_in_every_channel_with_a_dark_margin(tmp_path: Path) -> None:
    """And it is the digit, with its label."""
    digits = noise_digits(12, 5)
    assert prepare_digits(tmp_path, digits) == 17
    images, labels = all_of(open_digits(tmp_path, "eval"))
    assert torch.equal(labels, digits.eval_labels)
    assert all(torch.equal(images[:, channel, 2:-2, 2:-2], digits.eval_images[:, 0]) for channel in range(3))
    assert int(images.sum()) == 3 * int(digits.eval_images.sum())


@pytest.mark.dear
def test_the_held_out_digits_are_not_trained_on(tmp_path: Path) -> None:
    """No picture is in both splits."""
    prepare_digits(tmp_path, sklearn_digits())
    train, held_out = (
        {bytes(each) for each in all_of(open_digits(tmp_path, split))[0].flatten(1)} for split in ("train", "eval")
    )
    assert (len(train), len(held_out)) == (1498, 299)
    assert not train & held_out


def test_digits_that_are_not_there_or_broken(tmp_path: Path) -> None:
    """The error says how to make them."""
    with pytest.raises(HpcddpError, match=f"no digits-train.bin in {tmp_path}: `hpcddp data prepare digits --root {tmp_path}`"):
        open_digits(tmp_path, "train")
    (tmp_path / "digits-train.bin").write_bytes(b"\1" * 3072)
    with pytest.raises(HpcddpError, match=r"holds 3072 bytes, not a multiple of 3073 .*: prepare it again"):
        open_digits(tmp_path, "train")
    (tmp_path / "file").write_text("")
    with pytest.raises(HpcddpError, match="cannot write digits into"):
        prepare_digits(tmp_path / "file", noise_digits(2, 2))
