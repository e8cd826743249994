"""bigMNIST's three forms: `shards` reads every copy, `virtual` one copy again and again, `augmented` makes each sample anew."""

from __future__ import annotations

import shlex
from pathlib import Path

import torch
from torch import Tensor

from hpcddp.core.catalog import MNIST
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import VARIANTS, Data
from hpcddp.core.prepared import BASE, difference, prepared_for
from hpcddp.data.bigmnist.augment import CounterDraws, augment_by
from hpcddp.data.bigmnist.shards import MANIFEST, UNFINISHED, Manifest, Shard, ShardedSource, map_bytes, map_rows, read_manifest
from hpcddp.data.roots import missing
from hpcddp.data.source import Batch, FactsSource, RepeatedSource, Split


def open_bigmnist(data: Data, root: Path, split: Split) -> ShardedSource | RepeatedSource | AugmentedSource:
    """The prepared folder, if it holds what the point's form needs; HpcddpError says what to prepare otherwise."""
    manifest = _checked_manifest(data, root)
    if split == "eval":
        return ShardedSource(root, _complete(data, root, [manifest.eval_shard]))
    if data.form == "shards":
        return ShardedSource(root, _complete(data, root, manifest.train_shards))
    if data.form == "virtual":
        rows, labels = _samples(data, root, manifest, range(len(data.variants) * manifest.base_samples))
        return RepeatedSource(MNIST, rows.view(-1, *MNIST.shape), labels, data.copies * len(labels))
    first = manifest.variants.index(BASE) * manifest.base_samples
    return AugmentedSource(data, *_samples(data, root, manifest, range(first, first + manifest.base_samples)))


def _advice(data: Data, root: Path) -> str:
    copies, variants = prepared_for(data)
    chosen = "" if variants == VARIANTS else f" --variants {','.join(variants)}"
    command = f"hpcddp data prepare bigmnist --root {shlex.quote(str(root))} --copies {copies}{chosen}"
    return f"run `{command}` on the login node, with a Python that has torch"


def _checked_manifest(data: Data, root: Path) -> Manifest:
    if not (root / MANIFEST).is_file():
        unfinished = (root / UNFINISHED).is_file()
        raise missing("bigMNIST is not finished" if unfinished else "no bigMNIST (bigmnist.json)", root, _advice(data, root))
    manifest = read_manifest(root / MANIFEST)
    if words := difference(data, root, manifest.copies, manifest.variants):
        change = "" if data.form == "augmented" else "change the point or "
        raise HpcddpError(f"{words}: {change}prepare another folder")
    return manifest


def _complete(data: Data, root: Path, shards: list[Shard]) -> list[Shard]:
    broken = next((shard for shard in shards if not shard.complete(root)), None)
    if broken:
        advice = f"{_advice(data, root)}; intact files stay"
        raise missing(f"{broken.stem}.u8 or its labels are missing or cut short", root, advice)
    return shards


def _samples(data: Data, root: Path, manifest: Manifest, samples: range) -> tuple[Tensor, Tensor]:
    """Images (rows of bytes) and labels of neighbouring training samples; where one shard has them all, the file's map."""
    per = manifest.samples_per_shard
    numbers = range(samples.start // per, (samples.stop - 1) // per + 1)
    shards = _complete(data, root, manifest.train_shards[numbers.start : numbers.stop])
    within = slice(samples.start - numbers.start * per, samples.stop - numbers.start * per)
    images = [map_rows(root, shard) for shard in shards]
    labels = [map_bytes(shard.labels(root), shard.samples) for shard in shards]
    joined = (torch.cat(parts) if len(parts) > 1 else parts[0] for parts in (images, labels))
    rows, classes = (tensor[within] for tensor in joined)
    return rows, classes.long()


class AugmentedSource(FactsSource):
    """Samples as [copy][variant][digit], each made of its digit by draws of its own in every epoch."""

    def __init__(self, data: Data, rows: Tensor, labels: Tensor) -> None:
        super().__init__(MNIST)
        self._digits = rows.view(-1, *self.shape)
        self._labels = labels
        self._variants = data.variants
        self._copies = data.copies

    def __len__(self) -> int:
        return self._copies * len(self._variants) * len(self._labels)

    def batch(self, indices: Tensor) -> Batch:
        return self.drawn_batch(indices, "")

    def drawn_batch(self, indices: Tensor, draw: str) -> Batch:
        digits = indices % len(self._labels)
        images, variants = self._digits.index_select(0, digits), indices // len(self._labels) % len(self._variants)
        for number, variant in enumerate(self._variants):
            places = (variants == number).nonzero().flatten()
            if len(places):
                images[places] = augment_by(variant, images[places], CounterDraws(draw, indices[places]))
        return images, self._labels.index_select(0, digits)
