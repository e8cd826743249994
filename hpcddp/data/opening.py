"""Opens the source of a point's `data`, or says what is missing and where; with the user's own sets, and made-up ones."""

from __future__ import annotations

from math import prod
from typing import Any, cast

import torch
from torch import Tensor

from hpcddp.core.catalog import DatasetFacts, dataset_facts, is_on_disk, load_factory
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Data
from hpcddp.data.bigmnist.forms import open_bigmnist
from hpcddp.data.in_memory import CroppedSource
from hpcddp.data.pictures.imagenet import open_imagenet
from hpcddp.data.roots import expand_root
from hpcddp.data.sampling import generator_for
from hpcddp.data.small_sets import open_cifar10, open_digits, open_mnist
from hpcddp.data.source import Batch, RepeatedSource, Source, Split

OFFICIAL = {"mnist": open_mnist, "cifar10": open_cifar10, "digits": open_digits}


def open_source(data: Data, split: Split, root: str | None) -> Source:
    """One split of `data` from the folder `root`, in which variables are the job's own.

    Raises UsageError for a name that is none or a factory that makes no data set, HpcddpError for what is missing or broken.
    """
    facts = dataset_facts(data)
    if facts is None:
        return open_own(data.name, None if root is None else str(expand_root(data.name, root)), split)
    if not is_on_disk(data):
        return SyntheticSource(facts, split)
    folder = expand_root(data.name, root)
    if data.name == "bigmnist":
        return open_bigmnist(data, folder, split)
    if data.name == "imagenet":
        return open_imagenet(data, folder, split)
    source = OFFICIAL[data.name](folder, split)
    return CroppedSource(source) if split == "train" and data.augment == "crop_flip" else source


class OwnSource:
    """A data set of (image, label) pairs; images are tensors C x H x W, uint8 or floating point.

    `classes` is its own attribute (a number, or the list of their names); `shape`, `mean` and `std` may be. Without the
    last two, uint8 pixels are only scaled to 0..1; floating-point ones are used as they are in any case.
    """

    def __init__(self, name: str, dataset: Any) -> None:
        self._dataset = dataset
        self.classes = _classes(name, dataset)
        self.shape = _shape(name, dataset)
        self.mean = tuple(getattr(dataset, "mean", (0.0,) * self.shape[0]))
        self.std = tuple(getattr(dataset, "std", (1.0,) * self.shape[0]))

    def __len__(self) -> int:
        return len(self._dataset)

    def batch(self, indices: Tensor) -> Batch:
        images, labels = zip(*(self._dataset[index] for index in indices.tolist()), strict=True)
        return torch.stack(images), torch.tensor([int(label) for label in labels])


def open_own(name: str, root: str | None, split: Split) -> OwnSource:
    """What the factory `name` makes of `root`, which it may do without; UsageError where it is not a data set."""
    dataset = load_factory("data", name)(root, split)
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise UsageError(f"data `{name}` returned {type(dataset).__name__}, which lacks __len__ or __getitem__")
    if not len(dataset):
        raise UsageError(f"data `{name}` returned no samples for the split {split!r} from root {root}")
    return OwnSource(name, dataset)


def _classes(name: str, dataset: Any) -> int:
    classes = getattr(dataset, "classes", None)
    if classes is None:
        raise UsageError(f"data `{name}`: the data set has no attribute `classes`. Set it to the number of classes.")
    return classes if isinstance(classes, int) else len(classes)


def _shape(name: str, dataset: Any) -> tuple[int, int, int]:
    shape = getattr(dataset, "shape", None)
    if shape is None:
        image = dataset[0][0]
        if not isinstance(image, torch.Tensor):
            raise UsageError(f"data `{name}`: sample 0 is a {type(image).__name__}; an image must be a tensor C x H x W")
        shape = image.shape
    if len(shape) != 3:
        raise UsageError(f"data `{name}`: images have the shape {tuple(shape)}; C x H x W is expected")
    return cast(tuple[int, int, int], tuple(int(size) for size in shape))


POOL_BYTES = 32 << 20
"""Random images are drawn once; enough of them that a batch is not served from a core's own cache."""


class SyntheticSource(RepeatedSource):
    """As many samples as the real set has, from a fixed pool of random images; equal images have equal labels."""

    def __init__(self, facts: DatasetFacts, split: Split) -> None:
        samples = facts.train_samples if split == "train" else facts.eval_samples
        pool = min(samples, max(1, POOL_BYTES // prod(facts.shape)))
        generator = generator_for("synthetic", split, facts.shape)
        images = torch.randint(256, (pool, *facts.shape), dtype=torch.uint8, generator=generator)
        super().__init__(facts, images, torch.arange(pool) % facts.classes, samples)
