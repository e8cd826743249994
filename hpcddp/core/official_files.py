"""Files that others publish and that data sets are read from: their names, sizes and checksums, and who serves them.

Standard library only, Python 3.10.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

READ_BYTES = 2**20


@dataclass(frozen=True)
class OfficialFile:
    """One file as its publisher serves it."""

    name: str
    size_bytes: int
    md5: str


@dataclass(frozen=True)
class OfficialSet:
    """The files of a data set; each site has all of them under its address and their names."""

    files: tuple[OfficialFile, ...]
    sites: tuple[str, ...]


CIFAR10 = OfficialSet(
    files=(OfficialFile("cifar-10-binary.tar.gz", 170_052_171, "c32a1d4ab5d03f1284b67883e8d87530"),),
    sites=("https://www.cs.toronto.edu/~kriz/",),
)
"""The sum as https://www.cs.toronto.edu/~kriz/cifar.html gives it."""

MNIST = OfficialSet(
    files=(
        OfficialFile("train-images-idx3-ubyte.gz", 9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        OfficialFile("train-labels-idx1-ubyte.gz", 28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
        OfficialFile("t10k-images-idx3-ubyte.gz", 1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
        OfficialFile("t10k-labels-idx1-ubyte.gz", 4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    sites=("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
)
"""Sums and sites as torchvision's class MNIST has them, which asks the second site first; that one often refuses. Sizes as on
http://yann.lecun.com/exdb/mnist, which gives no sums."""


def md5_of(file: Path) -> str:
    """The file's MD5 as hexadecimal digits; it guards against damage, not against forgery."""
    digest = hashlib.md5(usedforsecurity=False)
    with file.open("rb") as opened:
        while block := opened.read(READ_BYTES):
            digest.update(block)
    return digest.hexdigest()
