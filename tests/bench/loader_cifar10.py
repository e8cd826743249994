"""Images per second of CIFAR-10, cropped and mirrored at random: `python -m tests.bench.loader_cifar10`.

Batches of 512 from memory, by one processor: a rank that reads for itself, and one whose data set lies on its device (here the
same processor), against torchvision's CIFAR10 with RandomCrop(32, padding=4) and RandomHorizontalFlip in a DataLoader with 2
workers on two processors. In each of several rounds every one is timed once, in another order; a figure is the median over rounds
of a ratio within the round. Images are random bytes: what is in them does not matter.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms  # type: ignore[import-untyped]

from hpcddp.core.catalog import CIFAR10
from hpcddp.data import TrainLoader
from hpcddp.data.in_memory import CroppedSource, Places, ResidentData
from hpcddp.data.source import TensorSource

SAMPLES, BATCH, WORKERS = CIFAR10.train_samples, 512, 2
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


def rate(batches: Callable[[], Iterable[Any]], count: int) -> float:
    """Samples/s of so many batches, the first of an epoch not counted."""
    taken = iter(batches())
    next(taken)
    begin_s = time.perf_counter()
    for _ in range(count):
        next(taken)
    return count * BATCH / (time.perf_counter() - begin_s)


def loader(source: Any) -> TrainLoader:
    return TrainLoader(source, batch_size=BATCH, rank=0, ranks=1, workers=0, seed=1, pin_memory=False)


def measure(rounds: int) -> dict[str, list[float]]:
    """Rates by name, one a round."""
    images = torch.randint(256, (SAMPLES, *CIFAR10.shape), dtype=torch.uint8)
    source = CroppedSource(TensorSource(CIFAR10, images, torch.zeros(SAMPLES, dtype=torch.int64)))
    data, places, rank = ResidentData(source, torch.device("cpu")), loader(Places(source)), loader(source)
    classic: DataLoader[Any] = DataLoader(Classic(images), BATCH, shuffle=True, num_workers=WORKERS)
    ways: dict[str, Callable[[], float]] = {
        "classic": lambda: rate(lambda: classic, 12),
        "rank": lambda: rate(lambda: rank.epoch(0), 60),
        "resident": lambda: rate(lambda: (data.batch(each) for each in places.epoch(0)), 60),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name in random.sample(sorted(ways), len(ways)):
            found[name].append(ways[name]())
    return found


def main() -> int:
    """Rates of each round, then a line of JSON; 1 where the bound does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:WORKERS])
    torch.set_num_threads(1)
    found = measure(parser.parse_args().rounds)
    for name, rates in found.items():
        print(f"{name:>9} {statistics.median(rates):10,.0f} images/s")
    ratios = {
        name: statistics.median(ours / classic for ours, classic in zip(found[name], found["classic"], strict=True))
        for name in ("rank", "resident")
    }
    holds = min(ratios.values()) >= CLASSIC_BOUND
    figures = {f"{name}_to_classic": round(ratio, 1) for name, ratio in ratios.items()}
    print(json.dumps({"bench": "loader_cifar10", **figures, "bound": CLASSIC_BOUND, "holds": holds}))
    return 0 if holds else 1


if __name__ == "__main__":
    raise SystemExit(main())
