"""ImageNet as a folder of JPEGs: ROOT/train/CLASS/*.JPEG and ROOT/val/CLASS/*.JPEG, decoded by Pillow."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hpcddp.core.catalog import IMAGENET
from hpcddp.core.errors import HpcddpError
from hpcddp.data.roots import missing
from hpcddp.data.source import Batch, FactsSource, Split

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

FOLDERS = {"train": "train", "eval": "val"}
SUFFIXES = (".jpeg", ".jpg", ".png")
CROP = IMAGENET.shape[1]
EVAL_SHORT_SIDE = 256
AREA = (0.08, 1.0)
ASPECT = (3 / 4, 4 / 3)
"""torchvision's defaults for RandomResizedCrop, as in its ImageNet recipe."""

Box = tuple[int, int, int, int]
"""Left, upper, right, lower; pixels."""

Cut = Callable[["Picture"], "Picture"]
"""The part of a picture that is trained on, resized to 224 x 224."""


def open_imagenet(root: Path, split: Split) -> TrainImages | EvalImages:
    """The split's files, listed; HpcddpError where the folders are not as they should be."""
    listing = Listing(root, split)
    return TrainImages(listing) if split == "train" else EvalImages(listing)


class Listing:
    """Paths and labels of a split.

    A million paths are kept as one string of bytes: as Python objects they would take 130 MB, and forked workers would
    copy them page by page as reference counts change.
    """

    def __init__(self, root: Path, split: Split) -> None:
        self._folder = root / FOLDERS[split]
        self._classes = _class_names(root, "train")
        names: list[bytes] = []
        labels: list[int] = []
        for name in _class_names(root, FOLDERS[split]):
            files = _pictures(self._folder / name)
            names += files
            labels += [self._label(name)] * len(files)
        if not names:
            raise missing(f"no pictures ({', '.join(SUFFIXES)})", self._folder, "put ILSVRC2012's there, a folder per class")
        self._names = b"".join(names)
        self._ends = torch.tensor([len(name) for name in names]).cumsum(0)
        self.labels = torch.tensor(labels)

    def path(self, index: int) -> Path:
        start = int(self._ends[index - 1]) if index else 0
        name = os.fsdecode(self._names[start : int(self._ends[index])])
        return self._folder / self._classes[int(self.labels[index])] / name

    def _label(self, name: str) -> int:
        if name not in self._classes:
            raise HpcddpError(f"{self._folder} has a class `{name}` that {self._folder.parent / 'train'} lacks")
        return self._classes.index(name)


class EvalImages(FactsSource):
    """Short side to 256 pixels, the middle 224 x 224."""

    def __init__(self, listing: Listing) -> None:
        super().__init__(IMAGENET)
        self._listing = listing

    def __len__(self) -> int:
        return len(self._listing.labels)

    def batch(self, indices: list[int]) -> Batch:
        return self._read(indices, [middle] * len(indices))

    def _read(self, indices: list[int], cuts: Sequence[Cut]) -> Batch:
        images = torch.empty(len(indices), *self.shape, dtype=torch.uint8)
        for image, index, cut in zip(images, indices, cuts, strict=True):
            image.copy_(_decode(self._listing.path(index), cut))
        return images, self._listing.labels[indices]


class TrainImages(EvalImages):
    """A random part of 8 to 100 % of the area, resized to 224 x 224, mirrored half the time."""

    def batch(self, indices: list[int]) -> Batch:
        return self.drawn_batch(indices, "")

    def drawn_batch(self, indices: list[int], draw: str) -> Batch:
        return self._read(indices, [RandomCut(random.Random(f"{draw}/{index}")) for index in indices])


def middle(picture: Picture) -> Picture:
    """torchvision's Resize(256) and CenterCrop(224)."""
    from PIL import Image

    short = min(picture.size)
    width, height = (int(EVAL_SHORT_SIDE * side / short) for side in picture.size)
    left, upper = round((width - CROP) / 2), round((height - CROP) / 2)
    resized = picture.resize((width, height), Image.Resampling.BILINEAR)
    return resized.crop((left, upper, left + CROP, upper + CROP))


class RandomCut:
    """torchvision's RandomResizedCrop(224) and RandomHorizontalFlip, from draws of one image's own."""

    def __init__(self, draws: random.Random) -> None:
        self._draws = draws

    def __call__(self, picture: Picture) -> Picture:
        from PIL import Image

        box = random_box(picture.width, picture.height, self._draws)
        cut = picture.crop(box).resize((CROP, CROP), Image.Resampling.BILINEAR)
        return cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if self._draws.random() < 0.5 else cut


def random_box(width: int, height: int, draws: random.Random) -> Box:
    """Ten tries at an area and an aspect ratio that fit, then the middle with the ratio clamped."""
    for _ in range(10):
        area = width * height * draws.uniform(*AREA)
        aspect = math.exp(draws.uniform(math.log(ASPECT[0]), math.log(ASPECT[1])))
        wide, high = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < high <= height:
            left, upper = draws.randint(0, width - wide), draws.randint(0, height - high)
            return left, upper, left + wide, upper + high
    wide, high = min(width, round(height * ASPECT[1])), min(height, round(width / ASPECT[0]))
    left, upper = (width - wide) // 2, (height - high) // 2
    return left, upper, left + wide, upper + high


def _class_names(root: Path, folder: str) -> list[str]:
    """Sorted: a class's number is its place among the training folders, as everywhere."""
    try:
        entries = list(os.scandir(root / folder))
    except OSError as error:
        raise missing(
            f"no folder {folder}/ of ImageNet", root, "put ILSVRC2012's pictures there as train/CLASS/*.JPEG and val/CLASS/*.JPEG"
        ) from error
    names = sorted(entry.name for entry in entries if entry.is_dir())
    if entries and not names:
        raise HpcddpError(f"{root / folder} holds pictures but no folders: sort them into a folder per class, named as in train/")
    if len(names) > IMAGENET.classes:
        raise HpcddpError(f"{root / folder} holds {len(names)} folders; ImageNet has {IMAGENET.classes} classes")
    return names


def _pictures(folder: Path) -> list[bytes]:
    return sorted(os.fsencode(entry.name) for entry in os.scandir(folder) if entry.name.lower().endswith(SUFFIXES))


def _decode(path: Path, cut: Cut) -> Tensor:
    """3 x 224 x 224, uint8; grey and CMYK pictures (ImageNet has both) become RGB."""
    try:
        from PIL import Image
    except ImportError as error:
        raise HpcddpError("ImageNet's pictures need Pillow, which comes with torchvision: install hpcddp[train]") from error
    try:
        with Image.open(path) as file:
            picture = file.convert("RGB")
    except OSError as error:
        raise HpcddpError(f"cannot decode {path}: {error}; replace it from the original archive") from error
    pixels = torch.frombuffer(bytearray(cut(picture).tobytes()), dtype=torch.uint8)
    return pixels.view(CROP, CROP, 3).permute(2, 0, 1)
