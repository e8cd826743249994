from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hpcddp.core.errors import HpcddpError
from hpcddp.data.digits import Digits, find_digits, official_digits, sklearn_digits
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
