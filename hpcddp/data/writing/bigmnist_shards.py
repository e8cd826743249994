"""The files of one shard of bigMNIST, made from the digits.

The draws of a (copy, variant) block depend on the seed, the copy and the variant only, so that a shard has the same bytes
whichever process makes it, and whatever was made before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import torch

from hpcddp.data.bigmnist.augment import augment
from hpcddp.data.bigmnist.manifest import Manifest, Shard
from hpcddp.data.digits import Digits
from hpcddp.data.sampling import generator_for
from hpcddp.data.source import Batch, to_bytes
from hpcddp.data.writing.parts import written_aside
from hpcddp.data.writing.pool import Advance

BATCH = 1024
"""Digits augmented at a time: few enough that their working memory stays in a core's cache, twice as fast as 4096."""


def write_shard(root: Path, shard: Shard, manifest: Manifest, digits: Digits, advance: Advance) -> dict[str, str]:
    """Writes both files of `shard`; their names with the SHA-256 of what was written."""
    finals = (shard.images(root), shard.labels(root))
    digests = (hashlib.sha256(), hashlib.sha256())
    with written_aside(finals[0]) as images_file, written_aside(finals[1]) as labels_file:
        for images, labels in _batches(shard, manifest, digits):
            for file, digest, tensor in zip((images_file, labels_file), digests, (images, labels.to(torch.uint8)), strict=True):
                content = to_bytes(tensor)
                file.write(content)
                digest.update(content)
            if shard != manifest.eval_shard:
                advance(len(labels))
    return {final.name: digest.hexdigest() for final, digest in zip(finals, digests, strict=True)}


def _batches(shard: Shard, manifest: Manifest, digits: Digits) -> Iterator[Batch]:
    if shard == manifest.eval_shard:
        yield digits.eval_images, digits.eval_labels
        return
    blocks = [(copy, variant) for copy in range(manifest.copies) for variant in manifest.variants]
    per_shard = manifest.samples_per_shard // manifest.base_samples
    number = manifest.train_shards.index(shard)
    for copy, variant in blocks[number * per_shard : (number + 1) * per_shard]:
        generator = generator_for("bigmnist", manifest.seed, copy, variant)
        for start in range(0, manifest.base_samples, BATCH):
            batch = slice(start, start + BATCH)
            yield augment(variant, digits.train_images[batch], generator), digits.train_labels[batch]
