"""A small task learned from JPEGs by the classic input pipeline and by hpcddp's: accuracy on the same evaluation pictures.

scikit-learn's digits, each a picture of 120 x 90 to 200 x 150 pixels with grain; a small network on 224 x 224, some epochs, with
the recipe's random crops. What differs between the two is the input pipeline and its draws, so that the difference of a seed has
the spread of those draws.
"""

from __future__ import annotations

import io
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch import nn

from hpcddp.core.point import Data
from hpcddp.data import TrainLoader, eval_batches, open_source

EPOCHS, BATCH, SEEDS = 6, 50, (1, 2, 3)
TRAIN, EVALUATION = 1000, 500
MEAN, STD = 0.5, 0.25


def write_digits(root: Path) -> None:
    """As folders of ImageNet, ten classes."""
    found = load_digits()
    draws = np.random.default_rng(4)
    for number, (digit, label) in enumerate(zip(found.images[: TRAIN + EVALUATION], found.target, strict=False)):
        folder = root / ("train" if number < TRAIN else "val") / f"n{label:08d}"
        folder.mkdir(parents=True, exist_ok=True)
        size = int(draws.integers(12, 21)) * 10
        large = Image.fromarray((digit * 15).astype(np.uint8)).resize((size, size * 3 // 4), Image.Resampling.BICUBIC)
        grainy = np.asarray(large, np.float32)[..., None] + draws.normal(0, 12, (size * 3 // 4, size, 3))
        file = io.BytesIO()
        Image.fromarray(grainy.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
        (folder / f"{number}.JPEG").write_bytes(file.getvalue())


def accuracies(root: Path, classic: Callable[[int], Iterable[Any]]) -> tuple[list[float], list[float]]:
    """By seed, of hpcddp's pipeline and of the classic one; `classic`: its batches of an epoch of normalised floats."""
    source = open_source(Data(name="imagenet"), "train", str(root))
    ours, theirs = [], []
    for seed in SEEDS:
        loader = TrainLoader(source, batch_size=BATCH, rank=0, ranks=1, workers=1, seed=seed, pin_memory=False)
        ours.append(trained(root, seed, loader.epoch))
        theirs.append(trained(root, seed, classic))
    return ours, theirs


def difference(ours: list[float], theirs: list[float]) -> float:
    """Percentage points by which hpcddp's is better on the mean."""
    return 100 * (statistics.mean(ours) - statistics.mean(theirs))


def trained(root: Path, seed: int, epoch: Callable[[int], Iterable[Any]]) -> float:
    """The share of the evaluation pictures that a network gets right after EPOCHS."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        *(nn.AvgPool2d(8), nn.Conv2d(3, 32, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 10)),
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for number in range(EPOCHS):
        for images, labels in epoch(number):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(normalised(images)), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    source = open_source(Data(name="imagenet"), "eval", str(root))
    with torch.no_grad():
        batches = eval_batches(source, batch_size=100, rank=0, ranks=1, workers=0)
        right = sum(int((net(normalised(images)).argmax(1) == labels).sum()) for images, labels in batches)
    return right / len(source)


def normalised(images: torch.Tensor) -> torch.Tensor:
    """Bytes as the classic pipeline's floats; these as they are."""
    return (images.float() / 255 - MEAN) / STD if images.dtype == torch.uint8 else images
