"""Writes scikit-learn's digits as `hpcddp/data/rgb_digits.py` reads them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from hpcddp.core.errors import HpcddpError
from hpcddp.data.digits import Digits
from hpcddp.data.rgb_digits import FILES
from hpcddp.data.source import to_bytes
from hpcddp.data.writing.parts import write_complete

MARGIN = 2
"""Pixels around an image of 28 x 28."""


def prepare_digits(root: Path, digits: Digits) -> int:
    """Writes both splits into `root`; how many digits. HpcddpError where it cannot be written."""
    splits = {"train": (digits.train_images, digits.train_labels), "eval": (digits.eval_images, digits.eval_labels)}
    try:
        root.mkdir(parents=True, exist_ok=True)
        for split, (images, labels) in splits.items():
            write_complete(root / FILES[split], to_bytes(_records(images, labels)))
    except OSError as error:
        raise HpcddpError(f"cannot write digits into {root}: {error}") from error
    return sum(len(labels) for _, labels in splits.values())


def _records(images: Tensor, labels: Tensor) -> Tensor:
    """A label and three equal planes for each, uint8."""
    planes = functional.pad(images, (MARGIN,) * 4).expand(-1, 3, -1, -1).flatten(1)
    return torch.cat([labels[:, None].to(torch.uint8), planes], dim=1)
