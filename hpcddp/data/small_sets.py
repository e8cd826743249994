"""MNIST and CIFAR-10 from their official files, as they come or unpacked, and whether these are the official ones; and the digits
that stand in for them where they are not at hand, MNIST's own or scikit-learn's, of which bigMNIST is made.

MNIST has four files in IDX format (http://yann.lecun.com/exdb/mnist), CIFAR-10 is read in its binary version
(https://www.cs.toronto.edu/~kriz/cifar.html).
"""

from __future__ import annotations

import gzip
import hashlib
import math
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from hpcddp.core.catalog import CIFAR10, DIGITS, MNIST
from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.official_files import OFFICIAL, is_official
from hpcddp.core.text import thousands
from hpcddp.data.roots import first_file, missing
from hpcddp.data.source import Split, TensorSource, to_bytes

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
    return _find_mnist(root, f"{STEMS[split]}-images-idx3-ubyte"), _find_mnist(root, f"{STEMS[split]}-labels-idx1-ubyte")


def read_idx(path: Path, dimensions: int) -> Tensor:
    """The array of an IDX file of unsigned bytes, plain or .gz; HpcddpError unless header and size agree."""
    data = _unpacked(path)
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


def _first_mnist(root: Path, name: str) -> Path | None:
    return first_file((root, root / "MNIST" / "raw"), (name, f"{name}.gz"))


def _find_mnist(root: Path, name: str) -> Path:
    found = _first_mnist(root, name)
    if found is None:
        raise missing(
            f"no {name} or {name}.gz", root, f"put MNIST's four official files there: `hpcddp data fetch mnist --root {root}`"
        )
    return found


def _unpacked(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise HpcddpError(f"cannot read {path}: {error}") from error


ARCHIVE = "cifar-10-binary.tar.gz"
FOLDER = "cifar-10-batches-bin"
PICKLED = ("cifar-10-python.tar.gz", "cifar-10-batches-py/data_batch_1", "data_batch_1")
CIFAR10_FILES = {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "eval": ("test_batch.bin",)}
RECORD_BYTES = 1 + 3 * 32 * 32
"""One label, then the red, green and blue planes, row by row."""


def open_cifar10(root: Path, split: Split) -> TensorSource:
    """The split in memory (154 MB for training); HpcddpError where a file is missing or broken."""
    found, names = cifar10_files(root, split), CIFAR10_FILES[split]
    files = _unpack(found[0], names) if found[0].name == ARCHIVE else {path.name: path.read_bytes() for path in found}
    parts = [parse_records(data, f"{name} of {root}", "fetch it again") for name, data in files.items()]
    images, labels = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return TensorSource(CIFAR10, images, labels)


def cifar10_files(root: Path, split: Split) -> tuple[Path, ...]:
    """Those of the split, or the archive alone where not all of them are unpacked; HpcddpError where one is missing."""
    names, archive = CIFAR10_FILES[split], root / ARCHIVE
    if archive.is_file() and not all(first_file((root, root / FOLDER), (name,)) for name in names):
        return (archive,)
    return tuple(_find_cifar10(root, name) for name in names)


def _find_cifar10(root: Path, name: str) -> Path:
    found = first_file((root, root / FOLDER), (name,))
    if found is not None:
        return found
    pickled = first_file((root,), PICKLED)
    if pickled is not None:
        raise UsageError(
            f"{pickled} is CIFAR-10's Python version, a pickle, which can run code when opened. "
            f"fetch the binary version, {ARCHIVE}, into {root} instead"
        )
    remedy = f"put CIFAR-10's official {ARCHIVE} there: `hpcddp data fetch cifar10 --root {root}`"
    raise missing(f"no {name} and no {ARCHIVE}", root, remedy)


def _unpack(archive: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """The named files' bytes, in the order of `names`; nothing is written."""
    found = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                file = tar.extractfile(member)
                if file is not None and Path(member.name).name in names:
                    found[Path(member.name).name] = file.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise HpcddpError(f"cannot read {archive}: {error}; fetch it again") from error
    lacking = [name for name in names if name not in found]
    if lacking:
        raise HpcddpError(f"{archive} lacks {', '.join(lacking)}: fetch it again")
    return {name: found[name] for name in names}


def parse_records(data: bytes, where: str, remedy: str) -> tuple[Tensor, Tensor]:
    """Images (uint8, N x 3 x 32 x 32) and labels (int64, N) of one file; HpcddpError with `remedy` where it is broken."""
    if not data or len(data) % RECORD_BYTES:
        raise HpcddpError(
            f"{where} holds {len(data)} bytes, not a multiple of {RECORD_BYTES} (one image and its label): {remedy}"
        )
    records = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(-1, RECORD_BYTES)
    labels = records[:, 0].long()
    if labels.max() >= CIFAR10.classes:
        raise HpcddpError(f"{where} holds the label {int(labels.max())}; CIFAR-10 has 0 to 9")
    return records[:, 1:].reshape(-1, *CIFAR10.shape), labels


FILES_OF: dict[str, Callable[[Path, Split], tuple[Path, ...]]] = {"mnist": mnist_files, "cifar10": cifar10_files}
"""Of a split, by data set."""


def unofficial_files(name: str, root: Path) -> tuple[str, ...] | None:
    """Of what data set `name` reads of `root` for training, names of files with another size or checksum than the publisher's;
    None for a data set without a publisher's checksums. HpcddpError where a file is missing.

    Half a second for CIFAR-10.
    """
    if name not in OFFICIAL:
        return None
    official = OFFICIAL[name].by_name()
    return tuple(file.name for file in FILES_OF[name](root, "train") if not is_official(file, official[file.name]))


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
        digest = hashlib.sha256()
        for tensor in (self.train_images, self.train_labels, self.eval_images, self.eval_labels):
            digest.update(to_bytes(tensor.to(torch.uint8)))
        return digest.hexdigest()


def official_digits(root: Path) -> Digits:
    """MNIST from its official files in `root` or `root`/MNIST/raw; HpcddpError where they are missing or broken."""
    train_images, train_labels = read_mnist(root, "train")
    message = f"digits: MNIST's own {thousands(len(train_images))} from {root}"
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
    message = f"digits: scikit-learn's {thousands(len(labels))} of 8 x 8 pixels, upscaled to 28 x 28; not MNIST"
    return Digits("sklearn", message, images[~held_out], labels[~held_out], images[held_out], labels[held_out])


def find_digits(source: Literal["auto", "mnist", "sklearn"], root: Path | None) -> Digits:
    """MNIST from the folder `root`, scikit-learn's, or (auto) the former where its files are and else the latter."""
    images = f"{STEMS['train']}-images-idx3-ubyte"
    if source == "sklearn" or (source == "auto" and (root is None or _first_mnist(root, images) is None)):
        return sklearn_digits()
    if root is None:
        raise HpcddpError("digits from MNIST need the folder of its official files")
    return official_digits(root)


DIGITS_FILES = {"train": "digits-train.bin", "eval": "digits-eval.bin"}


def open_digits(root: Path, split: Split) -> TensorSource:
    """The split in memory; HpcddpError where its file is missing or broken."""
    file = root / DIGITS_FILES[split]
    if not file.is_file():
        raise missing(f"no {file.name}", root, f"`hpcddp data prepare digits --root {root}` writes it")
    return TensorSource(DIGITS, *parse_records(file.read_bytes(), f"{file.name} of {root}", "prepare it again"))
