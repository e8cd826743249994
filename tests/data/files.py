"""Small data sets in the official formats, written byte by byte, and a folder of JPEGs."""

from __future__ import annotations

import gzip
import io
import random
import struct
import tarfile
from pathlib import Path

from PIL import Image

from hpcddp.data import Split

SPLITS: tuple[Split, ...] = ("train", "eval")

MNIST_NAMES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "eval": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
CIFAR_NAMES = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def idx_images(count: int, seed: int = 0) -> bytes:
    return struct.pack(">IIII", 0x00000803, count, 28, 28) + noise(count * 784, seed)


def idx_labels(count: int) -> bytes:
    return struct.pack(">II", 0x00000801, count) + bytes(index % 10 for index in range(count))


def write_mnist(folder: Path, *, train: int = 20, evaluation: int = 7, packed: bool = False) -> None:
    """All four files, with .gz as they are served or without."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", train), ("eval", evaluation)):
        for name, data in zip(MNIST_NAMES[split], (idx_images(count, len(split)), idx_labels(count)), strict=True):
            path = folder / (f"{name}.gz" if packed else name)
            path.write_bytes(gzip.compress(data) if packed else data)


def cifar_file(number: int, records: int = 3) -> bytes:
    """`records` images, each its label and 3,072 bytes of noise."""
    return b"".join(bytes([(number + index) % 10]) + noise(3072, 100 * number + index) for index in range(records))


def write_cifar(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(CIFAR_NAMES):
        (folder / name).write_bytes(cifar_file(number))


def write_cifar_archive(root: Path, names: list[str] = CIFAR_NAMES) -> Path:
    path = root / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for number, name in enumerate(names):
            data = cifar_file(number)
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def write_picture(path: Path, size: tuple[int, int], mode: str = "RGB", seed: int = 0) -> None:
    """Coarse noise, so that JPEG keeps it and crops of it differ."""
    channels = len(Image.new(mode, (1, 1)).getbands())
    small = Image.frombytes(mode, (8, 8), noise(64 * channels, seed))
    path.parent.mkdir(parents=True, exist_ok=True)
    small.resize(size, Image.Resampling.BICUBIC).save(path, "JPEG")


def write_imagenet(root: Path, *, per_class: int = 3) -> None:
    """Two classes; `train` and `val` with pictures of different sizes."""
    for folder, seed in (("train", 0), ("val", 50)):
        for label, name in enumerate(("n01440764", "n01443537")):
            for index in range(per_class):
                size = (300 + 40 * index, 260 + 70 * label)
                write_picture(root / folder / name / f"{name}_{index}.JPEG", size, seed=seed + 10 * label + index)
