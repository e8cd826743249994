"""MNIST from its four official files (IDX format, http://yann.lecun.com/exdb/mnist), as they come or unpacked."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import torch
from torch import Tensor

from hpcddp.core.catalog import MNIST
from hpcddp.core.errors import HpcddpError
from hpcddp.data.roots import first_file, missing
from hpcddp.data.source import Split, TensorSource

STEMS = {"train": "train", "eval": "t10k"}
UNSIGNED_BYTES = 0x08
"""Third byte of an IDX file: its type; the fourth is the number of dimensions, then come their sizes, big-endian."""


def open_mnist(root: Path, split: Split) -> TensorSource:
    """The split in memory (47 MB for training); HpcddpError where a file is missing or not what its header says."""
    return TensorSource(MNIST, *read_mnist(root, split))


def read_mnist(root: Path, split: Split) -> tuple[Tensor, Tensor]:
    """Images (uint8, N x 1 x 28 x 28) and labels (int64, N)."""
    images_path, labels_path = mnist_files(root, split)
    images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
    if images.shape[1:] != MNIST.shape[1:]:
        raise HpcddpError(f"{images_path} holds images of shape {tuple(images.shape)}, not N x 28 x 28")
    if len(images) != len(labels):
        raise HpcddpError(f"{images_path} holds {len(images)} images, {labels_path} {len(labels)} labels")
    if labels.max() >= MNIST.classes:
        raise HpcddpError(f"{labels_path} holds the label {int(labels.max())}; MNIST has 0 to 9")
    return images.unsqueeze(1), labels.long()


def mnist_files(root: Path, split: Split) -> tuple[Path, Path]:
    """Of images and labels, packed or not; HpcddpError where one is missing."""
    return _find(root, f"{STEMS[split]}-images-idx3-ubyte"), _find(root, f"{STEMS[split]}-labels-idx1-ubyte")


def read_idx(path: Path, dimensions: int) -> Tensor:
    """The array of an IDX file of unsigned bytes, plain or .gz; HpcddpError unless header and size agree."""
    data = _read(path)
    header = 4 + 4 * dimensions
    if data[:4] != bytes((0, 0, UNSIGNED_BYTES, dimensions)):
        raise HpcddpError(
            f"{path} starts with {data[:4].hex()}, not with 0000{UNSIGNED_BYTES:02x}{dimensions:02x}: fetch it again"
        )
    shape = [int.from_bytes(data[at : at + 4], "big") for at in range(4, header, 4)]
    promised = header + math.prod(shape)
    if len(data) != promised or promised == header:
        raise HpcddpError(f"{path} holds {len(data)} bytes; its header promises {promised}: fetch it again")
    return torch.frombuffer(bytearray(data), dtype=torch.uint8, offset=header).view(shape)


def _find(root: Path, name: str) -> Path:
    found = first_file((root, root / "MNIST" / "raw"), (name, f"{name}.gz"))
    if found is None:
        raise missing(
            f"no {name} or {name}.gz", root, f"put MNIST's four official files there: `hpcddp data fetch mnist --root {root}`"
        )
    return found


def _read(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise HpcddpError(f"cannot read {path}: {error}") from error
