"""Made-up digits for tests of what is made from digits."""

from __future__ import annotations

import torch

from hpcddp.data.digits import Digits


def noise_digits(train: int, evaluation: int) -> Digits:
    """Noise, the same every time; labels 0 to 9 in turn."""
    draw = torch.Generator().manual_seed(3)
    images = torch.randint(256, (train + evaluation, 1, 28, 28), dtype=torch.uint8, generator=draw)
    labels = torch.arange(train + evaluation) % 10
    return Digits("sklearn", "digits: made up", images[:train], labels[:train], images[train:], labels[train:])
