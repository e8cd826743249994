"""Small data sets in the official formats, written byte by byte, made-up digits and JPEGs in folders; writers that are killed."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import random
import signal
import struct
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from PIL import Image

from hpcddp.data import Split
from hpcddp.data.small_sets import Digits

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


def noise_digits(train: int, evaluation: int) -> Digits:
    """Noise, the same every time; labels 0 to 9 in turn."""
    draw = torch.Generator().manual_seed(3)
    images = torch.randint(256, (train + evaluation, 1, 28, 28), dtype=torch.uint8, generator=draw)
    labels = torch.arange(train + evaluation) % 10
    return Digits("sklearn", "digits: made up", images[:train], labels[:train], images[train:], labels[train:])


KILLS = 12


def killed_at_random(work: Callable[[Path], object], folder: Path) -> list[Path]:
    """KILLS times `work` on one of a few folders, killed somewhere in the first half of its time; then each folder to its end.

    Processes that the killed one had started end with it.
    """
    begin_s = time.monotonic()
    work(folder / "timed")
    duration_s = time.monotonic() - begin_s
    draws, roots = random.Random(7), [folder / str(number) for number in range(4)]
    for number in range(KILLS):
        process = started(work, roots[number % len(roots)])
        time.sleep(draws.uniform(0, duration_s / 2))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        wait_for_group(process)
    for root in roots:
        work(root)
    return roots


def twice_at_once(work: Callable[[Path], object], root: Path) -> None:
    processes = [started(work, root) for _ in range(2)]
    assert [os.waitpid(process, 0)[1] for process in processes] == [0, 0]


def started(work: Callable[[Path], object], root: Path) -> int:
    """A fork of this process that does the work, and nothing else; with what it starts it is a process group."""
    process = os.fork()
    if process == 0:
        os.setpgid(0, 0)
        code = 1
        try:
            work(root)
            code = 0
        finally:
            os._exit(code)
    return process


def wait_for_group(group: int) -> None:
    """Until none of the process group runs, for 10 s at most."""
    deadline_s = time.monotonic() + 10
    while running := _running(group):
        assert time.monotonic() < deadline_s, f"{running} outlived {group}"
        time.sleep(0.01)


def _running(group: int) -> list[int]:
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, of_group, *_ = file.read_text().rpartition(")")[2].split()
            if int(of_group) == group and state not in "ZX":
                found.append(int(file.parent.name))
    return found
