"""Photographs as ImageNet has them, made from scikit-learn's two: 500 x 375 pixels, about 100 KB."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images  # type: ignore[import-untyped]

WIDTH, HEIGHT = 500, 375
GRAIN = 12.0
"""Standard deviation, in grey levels, of what is added to each: the files have 95 KB on the average, ImageNet's 110."""


def photograph(number: int, *, quality: int = 90) -> bytes:
    """A JPEG file; another part of a photograph, with other grain, for each number."""
    source = load_sample_images().images[number % 2]
    draws = np.random.default_rng(number)
    top, left = (int(draws.integers(0, room + 1)) for room in (source.shape[0] - HEIGHT, source.shape[1] - WIDTH))
    part = source[top : top + HEIGHT, left : left + WIDTH].astype(np.float32)
    grainy = part + draws.normal(0, GRAIN, (HEIGHT, WIDTH, 1))
    file = io.BytesIO()
    Image.fromarray(grainy.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=quality)
    return file.getvalue()


def write_photographs(root: Path, count: int, *, classes: int = 4) -> None:
    """As a training folder of ImageNet, and a validation folder with one picture a class."""
    for number in range(count + classes):
        folder = root / ("train" if number < count else "val") / f"n{number % classes:08d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:06d}.JPEG").write_bytes(photograph(number))
