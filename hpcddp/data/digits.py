"""Handwritten digits: those that bigMNIST is made of, MNIST's own or scikit-learn's where MNIST is not at hand; and the latter in
the shape of CIFAR-10, for its models where CIFAR-10 is not at hand.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from hpcddp.core.catalog import DIGITS
from hpcddp.core.errors import HpcddpError
from hpcddp.data.official import STEMS, parse_records, read_mnist
from hpcddp.data.roots import first_file, missing
from hpcddp.data.source import Split, TensorSource, to_bytes

SKLEARN_MAX = 16
"""scikit-learn's pixels are 0..16."""
EVAL_EVERY = 6
"""Every sixth of scikit-learn's digits is for evaluation; of MNIST's it is 10,000 of 70,000."""


@dataclass(frozen=True)
class Digits:
    """Images uint8, N x 1 x 28 x 28; labels int64, N."""

    source: Literal["mnist", "sklearn"]
    message: str
    """One sentence on which digits these are."""
    train_images: Tensor
    train_labels: Tensor
    eval_images: Tensor
    eval_labels: Tensor

    @property
    def sha256(self) -> str:
        """Of all images and labels."""
        digest = hashlib.sha256()
        for tensor in (self.train_images, self.train_labels, self.eval_images, self.eval_labels):
            digest.update(to_bytes(tensor.to(torch.uint8)))
        return digest.hexdigest()


def official_digits(root: Path) -> Digits:
    """MNIST from its official files in `root` or `root`/MNIST/raw; HpcddpError where they are missing or broken."""
    train_images, train_labels = read_mnist(root, "train")
    message = f"digits: MNIST's own {len(train_images):,} from {root}"
    return Digits("mnist", message, train_images, train_labels, *read_mnist(root, "eval"))


def sklearn_digits() -> Digits:
    """1,797 digits of 8 x 8 pixels (UCI's optical recognition set) that install with scikit-learn, upscaled to 28 x 28."""
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]
    except ImportError as error:
        raise HpcddpError("scikit-learn is not installed: `pip install scikit-learn`, or give MNIST's official files") from error
    small = load_digits()
    pixels = torch.tensor(small.images.tolist())[:, None] * (255 / SKLEARN_MAX)
    images = functional.interpolate(pixels, size=(28, 28), mode="bilinear").round().to(torch.uint8)
    labels = torch.tensor(small.target.tolist())
    held_out = torch.arange(len(labels)) % EVAL_EVERY == EVAL_EVERY - 1
    message = f"digits: scikit-learn's {len(labels):,} of 8 x 8 pixels, upscaled to 28 x 28; not MNIST"
    return Digits("sklearn", message, images[~held_out], labels[~held_out], images[held_out], labels[held_out])


def find_digits(source: Literal["auto", "mnist", "sklearn"], root: Path | None) -> Digits:
    """MNIST from the folder `root`, scikit-learn's, or (auto) the former where its files are and else the latter."""
    if source == "sklearn" or (source == "auto" and not _has_mnist(root)):
        return sklearn_digits()
    if root is None:
        raise HpcddpError("digits from MNIST need the folder of its official files")
    return official_digits(root)


def _has_mnist(root: Path | None) -> bool:
    if root is None:
        return False
    name = f"{STEMS['train']}-images-idx3-ubyte"
    return first_file((root, root / "MNIST" / "raw"), (name, f"{name}.gz")) is not None


FILES = {"train": "digits-train.bin", "eval": "digits-eval.bin"}


def open_digits(root: Path, split: Split) -> TensorSource:
    """The split in memory; HpcddpError where its file is missing or broken."""
    file = root / FILES[split]
    if not file.is_file():
        raise missing(f"no {file.name}", root, f"`hpcddp data prepare digits --root {root}` writes it")
    return TensorSource(DIGITS, *parse_records(file.read_bytes(), f"{file.name} of {root}", "prepare it again"))
