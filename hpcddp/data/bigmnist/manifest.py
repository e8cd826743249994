"""bigMNIST as it lies on disk: shards of raw bytes.

    bigmnist.json                            the manifest, renamed into place when everything else is there
    train-00000.u8  train-00000.labels.u8    images (784 bytes each) and labels (1 byte each), and so on
    eval.u8         eval.labels.u8           the evaluation digits, unaugmented

Training samples are laid out [copy][variant][digit].
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hpcddp.core.catalog import MNIST
from hpcddp.core.schema import Positive, added_later
from hpcddp.data.roots import decode_manifest

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

    def sizes(self, root: Path) -> dict[Path, int]:
        """Of both files, in bytes."""
        return {self.labels(root): self.samples, self.images(root): self.samples * IMAGE_BYTES}

    def complete(self, root: Path) -> bool:
        """Both files are there in full."""
        return all(path.is_file() and path.stat().st_size == size for path, size in self.sizes(root).items())


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


def read_bigmnist_manifest(path: Path) -> Manifest:
    """UsageError where the file is not a manifest that this version reads."""
    return decode_manifest(Manifest, path, "remove it with the shards beside it, or choose another folder")
