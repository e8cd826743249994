"""ImageNet's pictures as two sources: whatever cannot be decoded is replaced, and counted once."""

from __future__ import annotations

import base64
import mmap
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from hpcddp.core.catalog import IMAGENET
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Data
from hpcddp.core.text import thousands
from hpcddp.data.pictures.cuts import CutOf, RandomCut, middle_cut
from hpcddp.data.pictures.decoders import Decoder, make_decoder
from hpcddp.data.pictures.image_folder import DamagedPictureError, ImageFolder
from hpcddp.data.pictures.tar_shards import TAR_MANIFEST, TarShards
from hpcddp.data.source import Batch, FactsSource, Split

MOST_TRIES = 10_000
"""Pictures in a row of which none can be read: then it is not the pictures that are damaged."""


class Pictures(Protocol):
    """A split's files, wherever they lie."""

    labels: Tensor

    def name(self, index: int) -> str:
        """CLASS/FILE"""
        ...

    def content(self, index: int) -> bytes:
        """The picture's file; DamagedPictureError where there is none to read."""
        ...


def open_imagenet(data: Data, root: Path, split: Split) -> TrainImages | EvalImages:
    """The split's files, listed, from tar files where there are some; HpcddpError where they are not as they should be."""
    pictures, decoder = open_pictures(root, split), make_decoder(data.decoder)
    return TrainImages(pictures, decoder) if split == "train" else EvalImages(pictures, decoder)


def open_pictures(root: Path, split: Split) -> TarShards | ImageFolder:
    """From tar files where there are some."""
    return TarShards(root, split) if (root / TAR_MANIFEST).is_file() else ImageFolder(root, split)


def picture_damage(pictures: Pictures, index: int, decoder: Decoder) -> str | None:
    """Why it cannot be decoded; None where it can."""
    try:
        decoder.pixels(pictures.content(index), middle_cut)
    except DamagedPictureError as error:
        return str(error)
    return None


class EvalImages(FactsSource):
    """Short side to 256 pixels, the middle 224 x 224.

    In the place of a damaged picture stands the next one of the split that is not, with its own label.
    """

    def __init__(self, pictures: Pictures, decoder: Decoder) -> None:
        super().__init__(IMAGENET)
        self._pictures = pictures
        self._decoder = decoder
        self.damaged = DamagedPictures(len(pictures.labels))

    def __len__(self) -> int:
        return len(self._pictures.labels)

    def name(self, index: int) -> str:
        return self._pictures.name(index)

    def batch(self, indices: Tensor) -> Batch:
        return self._read(indices.tolist(), lambda _: middle_cut, within=False)

    def _read(self, indices: list[int], cut_for: Callable[[int], CutOf], *, within: bool) -> Batch:
        """`within`: what is damaged is replaced by the next picture of the batch, if there is one."""
        images, served = self._new_images(len(indices)), list(indices)
        missing = [place for place, index in enumerate(indices) if not self._fill(images[place], index, cut_for(index))]
        decoded = sorted(set(range(len(indices))) - set(missing)) if within else []
        for place in missing:
            if decoded:
                donor = next((other for other in decoded if other > place), decoded[0])
                images[place], served[place] = images[donor], indices[donor]
            else:
                served[place] = self._fill_from_next(images[place], indices[place], cut_for)
        return images, self._pictures.labels[served]

    def _fill_from_next(self, image: Tensor, index: int, cut_for: Callable[[int], CutOf]) -> int:
        """The first picture behind `index` that can be decoded, into `image`; HpcddpError where none can."""
        tries = min(len(self), MOST_TRIES)
        for number in ((index + step) % len(self) for step in range(1, tries)):
            if self._fill(image, number, cut_for(number)):
                return number
        raise HpcddpError(
            f"none of {thousands(tries)} images from {self.name(index)!r} on can be decoded ({self.why_damaged(index)}): "
            f"is the data folder complete and readable?"
        )

    def _fill(self, image: Tensor, index: int, cut_of: CutOf) -> bool:
        """Whether the picture could be decoded, into `image`."""
        if index in self.damaged:
            return False
        try:
            image.copy_(self._decoder.pixels(self._pictures.content(index), cut_of))
        except DamagedPictureError:
            self.damaged.add(index)
            return False
        return True

    def why_damaged(self, index: int) -> str:
        return picture_damage(self._pictures, index, self._decoder) or "it could not be read at first"

    def _new_images(self, count: int) -> Tensor:
        """Room for a batch whose bytes lie pixel by pixel, as decoders write them; a loader process shares it with the rank."""
        images = torch.empty((count, *self.shape), dtype=torch.uint8, memory_format=torch.channels_last)
        return images.share_memory_() if get_worker_info() else images  # type: ignore[no-untyped-call]


class TrainImages(EvalImages):
    """A random part of 8 to 100 % of the area, resized to 224 x 224, mirrored half the time.

    In the place of a damaged picture stands the next one of the rank's batch that is not, with its own label; after the last
    comes the first. Where none of the batch can be decoded, the next ones of the split take their places.
    """

    def batch(self, indices: Tensor) -> Batch:
        return self.drawn_batch(indices, "")

    def drawn_batch(self, indices: Tensor, draw: str) -> Batch:
        return self._read(indices.tolist(), lambda index: RandomCut(f"{draw}/{index}"), within=True)


class DamagedPictures:
    """A byte for each picture of a split, in memory that the rank shares with the loader processes it forks."""

    def __init__(self, pictures: int) -> None:
        self._flags = mmap.mmap(-1, max(1, pictures))

    def add(self, index: int) -> None:
        self._flags[index] = 1

    def __contains__(self, index: int) -> bool:
        return self._flags[index] == 1

    def packed(self) -> str:
        """All of them as text: 2 KB where there are few among ImageNet's 1.3 million."""
        return base64.b85encode(zlib.compress(self._flags[:], 1)).decode()


def damaged_of_all(ranks: Iterable[str]) -> list[int]:
    """The indices of the pictures that are damaged on any rank; `ranks`: what `packed` gave on each."""
    union: set[int] = set()
    for packed in ranks:
        flags = zlib.decompress(base64.b85decode(packed))
        index = flags.find(1)
        while index >= 0:
            union.add(index)
            index = flags.find(1, index + 1)
    return sorted(union)
