"""Files that others publish and that data sets are read from: their names, sizes and checksums, and who serves them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

READ_BYTES = 2**20


@dataclass(frozen=True)
class OfficialFile:
    """One file as its publisher serves it, or as it is when it is unpacked."""

    name: str
    size_bytes: int
    digest: str
    algorithm: str = "md5"


@dataclass(frozen=True)
class OfficialSet:
    """The files of a data set; each site has all of them under its address and their names."""

    files: tuple[OfficialFile, ...]
    unpacked: tuple[OfficialFile, ...]
    """What training reads of them."""
    sites: tuple[str, ...]
    folders: tuple[str, ...] = (".",)
    """Where unpacked files may lie, below the data set's folder; the first ones that are found are read."""

    def by_name(self) -> dict[str, OfficialFile]:
        """All of them, packed and unpacked."""
        return {file.name: file for file in (*self.files, *self.unpacked)}


CIFAR10 = OfficialSet(
    files=(OfficialFile("cifar-10-binary.tar.gz", 170_052_171, "c32a1d4ab5d03f1284b67883e8d87530"),),
    unpacked=(
        OfficialFile("data_batch_1.bin", 30_730_000, "aadd24acce27caa71bf4b10992e9e7b2d74c2540", "sha1"),
        OfficialFile("data_batch_2.bin", 30_730_000, "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795", "sha1"),
        OfficialFile("data_batch_3.bin", 30_730_000, "1dd00a74ab1d17a6e7d73e185b69dbf31242f295", "sha1"),
        OfficialFile("data_batch_4.bin", 30_730_000, "aab85764eb3584312d3c7f65fd2fd016e36a258e", "sha1"),
        OfficialFile("data_batch_5.bin", 30_730_000, "26e2849e66a845b7f1e4614ae70f4889ae604628", "sha1"),
        OfficialFile("test_batch.bin", 30_730_000, "67eb016db431130d61cd03c7ad570b013799c88c", "sha1"),
    ),
    folders=(".", "cifar-10-batches-bin"),
    sites=("https://www.cs.toronto.edu/~kriz/",),
)
"""The archive's sum as https://www.cs.toronto.edu/~kriz/cifar.html gives it; those of what is in it as MXNet's class CIFAR10 has
them (python/mxnet/gluon/data/vision in apache/mxnet)."""

MNIST = OfficialSet(
    files=(
        OfficialFile("train-images-idx3-ubyte.gz", 9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        OfficialFile("train-labels-idx1-ubyte.gz", 28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
        OfficialFile("t10k-images-idx3-ubyte.gz", 1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
        OfficialFile("t10k-labels-idx1-ubyte.gz", 4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    unpacked=(
        OfficialFile("train-images-idx3-ubyte", 47_040_016, "6bbc9ace898e44ae57da46a324031adb"),
        OfficialFile("train-labels-idx1-ubyte", 60_008, "a25bea736e30d166cdddb491f175f624"),
        OfficialFile("t10k-images-idx3-ubyte", 7_840_016, "2646ac647ad5339dbf082846283269ea"),
        OfficialFile("t10k-labels-idx1-ubyte", 10_008, "27ae3e4e09519cfbb04c329615203637"),
    ),
    folders=(".", "MNIST/raw"),
    sites=("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
)
"""Sums and sites as torchvision's class MNIST has them, which asks the second site first; that one often refuses. Sizes as on
http://yann.lecun.com/exdb/mnist, which gives no sums; those of unpacked files as secml's class CDataLoaderMNIST has them."""


OFFICIAL = {"cifar10": CIFAR10, "mnist": MNIST}
"""By the names of data sets."""


def is_official(path: Path, file: OfficialFile) -> bool:
    """Whether the file is there, and is the one that its publisher serves."""
    return path.is_file() and path.stat().st_size == file.size_bytes and digest_of(path, file.algorithm) == file.digest


def digest_of(path: Path, algorithm: str) -> str:
    """As hexadecimal digits; it guards against damage, not against forgery."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as opened:
        while block := opened.read(READ_BYTES):
            digest.update(block)
    return digest.hexdigest()
