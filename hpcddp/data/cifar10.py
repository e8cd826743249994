"""CIFAR-10 from its official binary version (https://www.cs.toronto.edu/~kriz/cifar.html), unpacked or not."""

from __future__ import annotations

import tarfile
import zlib
from pathlib import Path

import torch
from torch import Tensor

from hpcddp.core.catalog import CIFAR10
from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.data.roots import first_file, missing
from hpcddp.data.source import Split, TensorSource

ARCHIVE = "cifar-10-binary.tar.gz"
FOLDER = "cifar-10-batches-bin"
PICKLED = ("cifar-10-python.tar.gz", "cifar-10-batches-py/data_batch_1", "data_batch_1")
FILES = {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "eval": ("test_batch.bin",)}
RECORD_BYTES = 1 + 3 * 32 * 32
"""One label, then the red, green and blue planes, row by row."""


def open_cifar10(root: Path, split: Split) -> TensorSource:
    """The split in memory (154 MB for training); HpcddpError where a file is missing or broken."""
    found, names = cifar10_files(root, split), FILES[split]
    files = _unpack(found[0], names) if found[0].name == ARCHIVE else {path.name: path.read_bytes() for path in found}
    parts = [parse_records(data, f"{name} of {root}", "fetch it again") for name, data in files.items()]
    images, labels = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return TensorSource(CIFAR10, images, labels)


def cifar10_files(root: Path, split: Split) -> tuple[Path, ...]:
    """Those of the split, or the archive alone where not all of them are unpacked; HpcddpError where one is missing."""
    names, archive = FILES[split], root / ARCHIVE
    if archive.is_file() and not all(first_file((root, root / FOLDER), (name,)) for name in names):
        return (archive,)
    return tuple(_find(root, name) for name in names)


def _find(root: Path, name: str) -> Path:
    found = first_file((root, root / FOLDER), (name,))
    if found is not None:
        return found
    pickled = first_file((root,), PICKLED)
    if pickled is not None:
        raise UsageError(
            f"{pickled} is CIFAR-10's Python version, a pickle, which can run code when it is opened: "
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
