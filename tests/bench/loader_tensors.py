"""Samples per second of the loaders of bigMNIST and of CIFAR-10: `python -m tests.bench.loader_tensors`.

Warm, form `virtual`, batches of 512: the loader that a rank reads with itself against torchvision's MNIST with its usual
transforms in a DataLoader with 2 workers, and against nothing but torch.index_select of random rows of the same map into one
buffer, both with one thread. In each of several rounds every one of them is timed once; a figure is the median over rounds of a
ratio within the round.

Cold, form `shards`, in the order that 72 million samples have: runs of 18 neighbours, 14,112 bytes, each anywhere in an epoch.
The loader against threads that read chunks of that size at random, as many at a time, and against reading the files from their
beginning to their end. Before each, the page cache is told to forget the files, and asked whether it did.

The first batch of an epoch of 72 million samples, in a process of its own, before the disk is kept busy: how long it takes, and
how much more memory.

CIFAR-10, cropped and mirrored at random, from memory, by one processor: a rank that reads for itself, and one whose data set lies
on its device (here the same processor), against torchvision's CIFAR10 with RandomCrop(32, padding=4) and RandomHorizontalFlip in
a DataLoader with 2 workers on two processors. Images are random bytes: what is in them does not matter.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms  # type: ignore[import-untyped]

from hpcddp.core.catalog import CIFAR10, MNIST
from hpcddp.core.point import VARIANTS, Data
from hpcddp.core.schema import encode
from hpcddp.data import TrainLoader, open_source, sampling
from hpcddp.data.bigmnist.shards import IMAGE_BYTES, QUEUE_DEPTH, Manifest, Shard, ShardedSource, map_rows
from hpcddp.data.in_memory import CroppedSource, Places, ResidentData
from hpcddp.data.source import RepeatedSource, TensorSource
from tests.data.files import write_mnist

WORKERS = 2
CLASSIC_BOUND = 10.0
"""Times the classic pipeline's rate, which has two processors."""


class Classic(datasets.CIFAR10):  # type: ignore[misc]
    """torchvision's, of images that are at hand."""

    def __init__(self, images: torch.Tensor) -> None:
        self.data = np.ascontiguousarray(images.permute(0, 2, 3, 1).numpy())
        self.targets = [0] * len(images)
        steps = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
        self.transform = transforms.Compose([*steps, transforms.Normalize(CIFAR10.mean, CIFAR10.std)])
        self.target_transform = None


def of_cifar10(rounds: int) -> dict[str, object]:
    """Prints the rates."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:WORKERS])
    images = torch.randint(256, (CIFAR10.train_samples, *CIFAR10.shape), dtype=torch.uint8)
    source = CroppedSource(TensorSource(CIFAR10, images, torch.zeros(len(images), dtype=torch.int64)))
    data, places, rank = ResidentData(source, torch.device("cpu")), loader_of(Places(source)), loader_of(source)
    classic: DataLoader[Any] = DataLoader(Classic(images), BATCH, shuffle=True, num_workers=WORKERS)
    ways: dict[str, Callable[[], float]] = {
        "classic": lambda: rate(classic, 6),
        "rank": lambda: rate(rank.epoch(0), 1.5),
        "resident": lambda: rate((data.batch(each) for each in places.epoch(0)), 1.5),
    }
    rates = [timed(number, ways) for number in range(rounds)]
    for name in ways:
        print(f"{name:>9} {statistics.median(each[name] for each in rates):10,.0f} images/s")
    figures = {f"{name}_to_classic": round(ratio(rates, name, "classic"), 1) for name in ("rank", "resident")}
    return {"bench": "loader_cifar10", **figures, "bound": CLASSIC_BOUND, "holds": min(figures.values()) >= CLASSIC_BOUND}


BATCH, RUN = 512, 18
CHUNK_BYTES = RUN * IMAGE_BYTES
BOUNDS = {"times_torchvision": 100.0, "of_index_select": 0.6, "of_preads": 0.8, "of_sequential": 1 / 3}
FIRST_BATCH_S, FIRST_BATCH_MB = 0.5, 200.0
BLOCKS_LOG2 = 17
"""Runs of the cold files are so many that their length is that of 72 million samples: 1.85 GB."""


def main() -> int:
    """Prints the rates and one line of JSON; 1 where a bound does not hold."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="on the disk to be measured", default=None)
    parser.add_argument("--first-batch", choices=("virtual", "shards"))
    given = parser.parse_args()
    if given.first_batch:
        print(json.dumps(first_batch(Path(given.folder), given.first_batch)))
        return 0
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        first = {form: in_own_process(Path(folder), form) for form in ("virtual", "shards")}
        rates = [warm_rates(Path(folder), number) for number in range(given.rounds)]
        rates_cold = [cold_rates(Path(folder), number) for number in range(given.rounds)]
    for unit, found in (("M samples/s", rates), ("GB/s", rates_cold)):
        for name in found[0]:
            print(f"{name:<16} {statistics.median(each[name] for each in found):8.3f} {unit}")
    figures = {
        "times_torchvision": ratio(rates, "virtual", "torchvision"),
        "of_index_select": ratio(rates, "virtual", "index_select"),
        "of_preads": ratio(rates_cold, "shards", "preads"),
        "of_sequential": ratio(rates_cold, "shards", "sequential"),
    }
    for form, (seconds, megabytes) in first.items():
        print(f"first batch of 72 million, {form}: {seconds:.2f} s, {megabytes:.0f} MB more")
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    quick = all(seconds < FIRST_BATCH_S and megabytes < FIRST_BATCH_MB for seconds, megabytes in first.values())
    holds = quick and all(figures[name] >= bound for name, bound in BOUNDS.items())
    figures |= {"first_batch_s": max(first.values())[0], "first_batch_mb": max(megabytes for _, megabytes in first.values())}
    bounds = BOUNDS | {"first_batch_s": FIRST_BATCH_S, "first_batch_mb": FIRST_BATCH_MB}
    shown = {name: round(figure, 3) for name, figure in figures.items()}
    size = {"batch": BATCH, "chunk_bytes": CHUNK_BYTES, "queue_depth": QUEUE_DEPTH, "window_samples": RUN << BLOCKS_LOG2}
    print(json.dumps({"bench": "loader_bigmnist", **size, "figure": shown, "bound": bounds, "holds": holds}))
    of_small = of_cifar10(given.rounds)
    print(json.dumps(of_small))
    return 0 if holds and of_small["holds"] else 1


def ratio(rounds: list[dict[str, float]], name: str, other: str) -> float:
    """The median over rounds."""
    return statistics.median(each[name] / each[other] for each in rounds)


def timed(number: int, ways: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """The rate of each way, in an order that moves on by one each round."""
    names = [*ways][number % len(ways) :] + [*ways][: number % len(ways)]
    return {name: ways[name]() for name in names}


def warm_rates(root: Path, number: int) -> dict[str, float]:
    """Million samples per second."""
    shard = Shard("warm", 360_000)
    if not shard.images(root).exists():
        write_shard(root, shard)
        write_mnist(root / "MNIST" / "raw", train=60_000)
    rows = map_rows(root, shard)
    labels = torch.arange(len(rows)) % 10
    loader = loader_of(RepeatedSource(MNIST, rows.view(-1, *MNIST.shape), labels, 200 * len(labels)))
    epochs = iter(range(1000))
    ways = {
        "virtual": lambda: rate(loader.epoch(next(epochs)), 1.5),
        "index_select": lambda: rate(selected(rows), 1.5),
        "torchvision": lambda: rate(iter(torchvision_loader(root)), 6),
    }
    return {name: samples_per_s / 1e6 for name, samples_per_s in timed(number, ways).items()}


def loader_of(source: Any) -> TrainLoader:
    """For one rank that loads its own."""
    return TrainLoader(source, batch_size=BATCH, rank=0, ranks=1, workers=0, seed=1, pin_memory=False)


def torchvision_loader(root: Path) -> DataLoader[Any]:
    """As its examples have it."""
    steps = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    dataset = datasets.MNIST(str(root), train=True, transform=steps)
    return DataLoader(dataset, BATCH, shuffle=True, num_workers=2)


def selected(rows: torch.Tensor) -> Iterable[Any]:
    """Random rows, gathered into one buffer."""
    room, places = torch.empty(BATCH, IMAGE_BYTES, dtype=torch.uint8), torch.randint(len(rows), (64, BATCH))
    while True:
        for indices in places:
            yield torch.index_select(rows, 0, indices, out=room), indices


def rate(batches: Iterable[Any], limit_s: float) -> float:
    """Samples per second behind the first five batches, which start processes and fill caches."""
    iterator = iter(batches)
    for _ in range(5):
        next(iterator)
    begin, samples = time.perf_counter(), 0
    for _, labels in iterator:
        samples += len(labels)
        if time.perf_counter() - begin > limit_s:
            break
    return samples / (time.perf_counter() - begin)


def cold_rates(root: Path, number: int) -> dict[str, float]:
    """GB per second; an epoch of the files, or less of it where that takes seconds."""
    shards = [Shard(f"cold-{place}", RUN << (BLOCKS_LOG2 - 2)) for place in range(4)]
    for shard in shards:
        if not shard.images(root).exists():
            write_shard(root, shard)
    files = [shard.images(root) for shard in shards]
    before, sampling.MOST_BLOCKS_LOG2 = sampling.MOST_BLOCKS_LOG2, BLOCKS_LOG2
    try:
        loader = loader_of(ShardedSource(root, shards))
        ways = {
            "shards": lambda: rate(loader.epoch(number), 5.0) * IMAGE_BYTES,
            "preads": lambda: preads(files, 5.0),
            "sequential": lambda: sequential(files),
        }
        cold = {name: functools.partial(forgotten, files, way) for name, way in ways.items()}
        return {name: bytes_per_s / 1e9 for name, bytes_per_s in timed(number, cold).items()}
    finally:
        sampling.MOST_BLOCKS_LOG2 = before


def forgotten(files: list[Path], way: Callable[[], float]) -> float:
    """What `way` finds behind dropping the files from the page cache."""
    cached = 0
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        for _ in range(100):
            try:
                cached += os.preadv(descriptor, [bytearray(1)], random.randrange(file.stat().st_size), os.RWF_NOWAIT)
            except BlockingIOError:
                continue
        os.close(descriptor)
    assert cached <= 2 * len(files), f"{cached} of {100 * len(files)} bytes are in the page cache"
    return way()


def preads(files: list[Path], limit_s: float) -> float:
    """Bytes per second of QUEUE_DEPTH threads that read chunks at random."""
    places = [(number, at) for number, file in enumerate(files) for at in range(0, file.stat().st_size, CHUNK_BYTES)]
    random.shuffle(places)
    descriptors = [os.open(file, os.O_RDONLY) for file in files]
    for descriptor in descriptors:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    counts, begin = [0] * QUEUE_DEPTH, time.perf_counter()

    def read(thread: int) -> None:
        room = bytearray(CHUNK_BYTES)
        for number, at in places[thread::QUEUE_DEPTH]:
            if time.perf_counter() - begin > limit_s:
                return
            counts[thread] += os.preadv(descriptors[number], [room], at)

    threads = [threading.Thread(target=read, args=(thread,)) for thread in range(QUEUE_DEPTH)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begin
    for descriptor in descriptors:
        os.close(descriptor)
    return sum(counts) / seconds


def sequential(files: list[Path]) -> float:
    """Bytes per second from beginning to end."""
    room, count, begin = bytearray(4 << 20), 0, time.perf_counter()
    for path in files:
        with open(path, "rb", buffering=0) as file:
            while found := file.readinto(room):
                count += found
    return count / (time.perf_counter() - begin)


def write_shard(root: Path, shard: Shard) -> None:
    """Random bytes."""
    with open(shard.images(root), "wb") as file:
        for begin in range(0, shard.samples, 1 << 15):
            file.write(os.urandom(min(1 << 15, shard.samples - begin) * IMAGE_BYTES))
        os.fsync(file.fileno())
    shard.labels(root).write_bytes(bytes(shard.samples))


def in_own_process(root: Path, form: str) -> tuple[float, float]:
    """Seconds, and MB beyond what the process had."""
    folder = root / form
    folder.mkdir()
    manifest = Manifest(
        copies=200 if form == "shards" else 1,
        variants=VARIANTS,
        base_samples=60_000,
        eval_samples=1,
        samples_per_shard=600_000,
        digits="mnist",
        digits_sha256="",
        seed=1,
    )
    for shard in (*manifest.train_shards, manifest.eval_shard):  # holes: nothing on the disk
        for path, size in ((shard.images(folder), shard.samples * IMAGE_BYTES), (shard.labels(folder), shard.samples)):
            path.touch()
            os.truncate(path, size)
    (folder / "bigmnist.json").write_text(json.dumps(encode(manifest)))
    command = [sys.executable, "-m", "tests.bench.loader_tensors", "--first-batch", form, "--folder", str(folder)]
    seconds, megabytes = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return seconds, megabytes


def first_batch(folder: Path, form: str) -> tuple[float, float]:
    """From opening the data to the first batch, and the peak of the process beyond what it was before."""
    torch.randperm(1000)
    before_kb = peak_kb()
    begin = time.perf_counter()
    data = Data(name="bigmnist", form=form)  # type: ignore[arg-type]
    loader = loader_of(open_source(data, "train", str(folder)))
    images, _ = next(iter(loader.epoch(0)))
    seconds = time.perf_counter() - begin
    assert (len(images), loader.plan.samples) == (BATCH, 72_000_000)
    return seconds, (peak_kb() - before_kb) / 1024


def peak_kb() -> int:
    """The most that the process had in memory, pages of files it maps included."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0])


if __name__ == "__main__":
    raise SystemExit(main())
