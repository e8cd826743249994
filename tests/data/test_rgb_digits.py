"""Handwritten digits in CIFAR-10's shape: what is prepared is what is read."""

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
from hpcddp.data.digits import sklearn_digits
from hpcddp.data.rgb_digits import open_digits
from hpcddp.data.source import Split
from hpcddp.data.writing.digits import prepare_digits
from tests.data.digits import noise_digits


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
