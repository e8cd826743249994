"""A training set as the benchmark reads it: as training does, pictures without decoding, and pictures that are in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from hpcddp.core.point import Data
from hpcddp.data import Source, open_source
from hpcddp.data.bigmnist.manifest import IMAGE_BYTES
from hpcddp.data.pictures.cuts import CROP, CutOf
from hpcddp.data.pictures.decoders import make_decoder
from hpcddp.data.pictures.image_folder import DamagedPictureError, ImageFolder
from hpcddp.data.pictures.imagenet import Pictures, TrainImages, open_pictures
from hpcddp.data.pictures.tar_shards import TarShards
from hpcddp.data.roots import expand_root
from hpcddp.data.sampling import EpochOrder

IN_MEMORY = 64
"""Pictures that are decoded over and over: 7 MB of ImageNet's, more than a core has of its own cache."""

LARGE_FILES = {"bigmnist": "*.u8", "imagenet": "train-*.tar"}


@dataclass(frozen=True)
class BenchedData:
    """`reading` and `decoding`: of pictures only, where the two can be had apart."""

    training: Source
    reading: Source | None
    decoding: Source | None
    decoder: str | None
    bytes_per_sample: float | None
    """None where samples do not lie on a disk, or where it is not known how."""
    large_files: Sequence[Path]
    """All that samples are read from; none where each has a file of its own."""
    folder: ImageFolder | None
    """Of a file a picture."""

    def files(self, indices: Sequence[int]) -> Sequence[Path]:
        """What holds these samples."""
        return [self.folder.path(index) for index in indices] if self.folder else self.large_files


def open_data(data: Data, root: str | None, seed: int) -> BenchedData:
    """Raises as open_source does."""
    if data.name == "imagenet":
        return _open_pictures(data, expand_root(data.name, root), seed)
    source = open_source(data, "train", root)
    if data.name != "bigmnist" or data.form != "shards":  # one copy of the variants stays in memory
        return BenchedData(source, None, None, None, None, [], None)
    files = sorted(expand_root(data.name, root).glob(LARGE_FILES[data.name]))
    return BenchedData(source, None, None, None, IMAGE_BYTES + 1, files, None)


def _open_pictures(data: Data, root: Path, seed: int) -> BenchedData:
    pictures, decoder = open_pictures(root, "train"), make_decoder(data.decoder)
    held = _PicturesInMemory(pictures, seed)
    tars = [] if isinstance(pictures, ImageFolder) else sorted(root.glob(LARGE_FILES["imagenet"]))
    return BenchedData(
        training=TrainImages(pictures, decoder),
        reading=TrainImages(pictures, _Blank()),
        decoding=TrainImages(held, decoder) if held.contents else None,
        decoder=decoder.version,
        bytes_per_sample=held.mean_bytes,
        large_files=tars,
        folder=pictures if isinstance(pictures, ImageFolder) else None,
    )


class _PicturesInMemory:
    """The first pictures of the first epoch, again and again, as many as the split has."""

    def __init__(self, pictures: TarShards | ImageFolder, seed: int) -> None:
        self.labels: Tensor = pictures.labels
        first = EpochOrder(len(pictures.labels), seed, 0).samples_at(torch.arange(min(IN_MEMORY, len(pictures.labels))))
        self.contents = [content for index in first.tolist() if (content := _readable(pictures, index))]

    @property
    def mean_bytes(self) -> float | None:
        """None where none can be read."""
        return sum(map(len, self.contents)) / len(self.contents) if self.contents else None

    def name(self, index: int) -> str:
        return f"the benchmark's picture {index % len(self.contents)}"

    def content(self, index: int) -> bytes:
        return self.contents[index % len(self.contents)]


def _readable(pictures: Pictures, index: int) -> bytes:
    """Nothing of one that cannot be read."""
    try:
        return pictures.content(index)
    except DamagedPictureError:
        return b""


class _Blank:
    """In a decoder's place, where pictures are read and no more."""

    version = "none"

    def __init__(self) -> None:
        self._pixels = torch.zeros(3, CROP, CROP, dtype=torch.uint8)

    def pixels(self, content: bytes, cut_of: CutOf) -> Tensor:
        return self._pixels
