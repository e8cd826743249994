"""bigMNIST as it lies on disk: shards of raw bytes, read through memory maps.

    bigmnist.json                            the manifest, renamed into place when everything else is there
    train-00000.u8  train-00000.labels.u8    images (784 bytes each) and labels (1 byte each), and so on
    eval.u8         eval.labels.u8           the evaluation digits, unaugmented

Training samples are laid out [copy][variant][digit].
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from hpcddp.core.catalog import MNIST
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import VARIANTS, Data
from hpcddp.core.schema import Positive, SchemaError, added_later, decode
from hpcddp.data.roots import missing
from hpcddp.data.source import Batch, FactsSource, Split

MANIFEST = "bigmnist.json"
UNFINISHED = f"{MANIFEST}.part"
"""The manifest while shards are still being written."""
IMAGE_BYTES = math.prod(MNIST.shape)


@dataclass(frozen=True)
class Shard:
    """Two files of a split."""

    stem: str
    samples: int

    def images(self, root: Path) -> Path:
        return root / f"{self.stem}.u8"

    def labels(self, root: Path) -> Path:
        return root / f"{self.stem}.labels.u8"

    def complete(self, root: Path) -> bool:
        """Both files are there in full."""
        sizes = ((self.labels(root), self.samples), (self.images(root), self.samples * IMAGE_BYTES))
        return all(path.is_file() and path.stat().st_size == size for path, size in sizes)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a folder of bigMNIST holds; with the digits, everything its bytes follow from."""

    schema: Literal[1] = 1
    copies: Positive
    variants: tuple[str, ...]
    base_samples: Positive
    """Digits every variant is made of: 60,000 with MNIST's own."""
    eval_samples: Positive
    samples_per_shard: Positive
    """In every training shard but the last, which may be shorter."""
    digits: str
    """Where the digits come from: mnist or sklearn."""
    digits_sha256: str
    seed: int
    shape: tuple[int, ...] = MNIST.shape
    sha256: Mapping[str, str] = added_later(dict)
    """Of each file, by its name; none in folders of earlier versions. Before all is there, of what is finished."""

    @property
    def samples(self) -> int:
        """Training samples: copies x variants x digits."""
        return self.copies * len(self.variants) * self.base_samples

    @property
    def train_shards(self) -> list[Shard]:
        per = self.samples_per_shard
        return [
            Shard(f"train-{number:05d}", min(per, self.samples - start))
            for number, start in enumerate(range(0, self.samples, per))
        ]

    @property
    def eval_shard(self) -> Shard:
        return Shard("eval", self.eval_samples)


def read_manifest(path: Path) -> Manifest:
    """HpcddpError where the file is not a manifest this version reads."""
    try:
        return decode(Manifest, json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, SchemaError) as error:
        raise HpcddpError(f"{path} is not a bigMNIST manifest this version reads: {error}") from error


def open_bigmnist(data: Data, root: Path, split: Split) -> ShardedSource:
    """The prepared folder, if it holds what the point asks for; HpcddpError says what to prepare otherwise."""
    advice = f"run `{_command(data, root)}` on the login node, with a Python that has torch"
    if not (root / MANIFEST).is_file():
        unfinished = (root / UNFINISHED).is_file()
        raise missing("bigMNIST is not finished" if unfinished else "no bigMNIST (bigmnist.json)", root, advice)
    manifest = read_manifest(root / MANIFEST)
    _check_same(data, manifest, root)
    shards = manifest.train_shards if split == "train" else [manifest.eval_shard]
    broken = [shard for shard in shards if not shard.complete(root)]
    if broken:
        raise missing(f"{broken[0].stem}.u8 or its labels are missing or cut short", root, f"{advice}; it keeps what is whole")
    return ShardedSource(root, shards)


def _command(data: Data, root: Path) -> str:
    variants = "" if data.variants == VARIANTS else f" --variants {','.join(data.variants)}"
    return f"hpcddp data prepare bigmnist --root {shlex.quote(str(root))} --copies {data.copies}{variants}"


def _check_same(data: Data, manifest: Manifest, root: Path) -> None:
    for word, wanted, held in (
        ("copies", data.copies, manifest.copies),
        ("variants", ", ".join(data.variants), ", ".join(manifest.variants)),
    ):
        if wanted != held:
            raise HpcddpError(
                f"data.{word} is {wanted}, but the bigMNIST in {root} was prepared with {word} = {held}: "
                "change the point or prepare another folder"
            )


class ShardedSource(FactsSource):
    """Samples spread over shards of equal length (the last may be shorter); maps are opened by the process that reads."""

    def __init__(self, root: Path, shards: list[Shard]) -> None:
        super().__init__(MNIST)
        self._root = root
        self._shards = shards
        self._per_shard = shards[0].samples
        self._maps: dict[int, tuple[Tensor, Tensor]] = {}

    def __len__(self) -> int:
        return sum(shard.samples for shard in self._shards)

    def batch(self, indices: Tensor) -> Batch:
        """Sorted first, so that each shard is read once and forwards (2 million samples/s warm), then put back in order."""
        sorted_at, order = indices.sort()
        counts = torch.bincount(sorted_at // self._per_shard).tolist()
        within = torch.split(sorted_at % self._per_shard, [count for count in counts if count])
        maps = [self._map(number) for number, count in enumerate(counts) if count]
        images, labels = (
            torch.cat([tensor.index_select(0, at) for tensor, at in zip(tensors, within, strict=True)])
            for tensors in zip(*maps, strict=True)
        )
        back = order.argsort()
        return images.index_select(0, back), labels.index_select(0, back).long()

    def _map(self, number: int) -> tuple[Tensor, Tensor]:
        if number not in self._maps:
            shard = self._shards[number]
            images = _map_bytes(shard.images(self._root), shard.samples * IMAGE_BYTES)
            self._maps[number] = images.view(-1, *self.shape), _map_bytes(shard.labels(self._root), shard.samples)
        return self._maps[number]


def _map_bytes(path: Path, size: int) -> Tensor:
    """A private map: opened for reading, pages shared with every process that maps the file."""
    return torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)
