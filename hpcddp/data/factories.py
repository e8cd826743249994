"""The user's own data: `package.module:factory`, called with (root, split), returns a map-style data set."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from hpcddp.core.errors import UsageError
from hpcddp.core.factory import load_factory
from hpcddp.data.source import Batch, Split


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
        raise UsageError(f"data `{name}`: the data set has no attribute `classes`; set it to the number of classes")
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
