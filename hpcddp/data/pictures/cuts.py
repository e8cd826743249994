"""Which part of a picture is trained on or evaluated, at which size: numbers only, from draws of one picture's own."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from hpcddp.core.catalog import IMAGENET

CROP = IMAGENET.shape[1]
EVAL_SHORT_SIDE = 256
AREA = (0.08, 1.0)
ASPECT = (3 / 4, 4 / 3)
"""torchvision's defaults for RandomResizedCrop, as in its ImageNet recipe."""

Box = tuple[int, int, int, int]
"""Left, upper, right, lower; pixels."""


@dataclass(frozen=True)
class Cut:
    """`box` of the picture, resized to `size` (width, height); from `corner` (left, upper) on 224 x 224 pixels of that."""

    box: Box
    size: tuple[int, int]
    corner: tuple[int, int] = (0, 0)
    mirrored: bool = False

    def of_scaled(self, picture: tuple[int, int], scaled: tuple[int, int]) -> Cut:
        """The same part of the same picture that was decoded in another size, to the nearest of its pixels."""
        across, down = (new / old for old, new in zip(picture, scaled, strict=True))
        left, upper, right, lower = self.box
        box = (round(left * across), round(upper * down), round(right * across), round(lower * down))
        return replace(self, box=box)


CutOf = Callable[[int, int], Cut]
"""The cut of a picture of that width and height; equal sizes give equal cuts, however often it is called."""


def middle_cut(width: int, height: int) -> Cut:
    """torchvision's Resize(256) and CenterCrop(224)."""
    short = min(width, height)
    size = (int(EVAL_SHORT_SIDE * width / short), int(EVAL_SHORT_SIDE * height / short))
    left, upper = (round((side - CROP) / 2) for side in size)
    return Cut((0, 0, width, height), size, (left, upper))


class RandomCut:
    """torchvision's RandomResizedCrop(224) and RandomHorizontalFlip; `seed` says all that is drawn."""

    def __init__(self, seed: object) -> None:
        self._seed = str(seed)

    def __call__(self, width: int, height: int) -> Cut:
        draws = random.Random(self._seed)
        box = random_box(width, height, draws)
        return Cut(box, (CROP, CROP), mirrored=draws.random() < 0.5)


def random_box(width: int, height: int, draws: random.Random) -> Box:
    """Ten tries at an area and an aspect ratio that fit, then the middle with the ratio clamped."""
    for _ in range(10):
        area = width * height * draws.uniform(*AREA)
        aspect = math.exp(draws.uniform(math.log(ASPECT[0]), math.log(ASPECT[1])))
        wide, high = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < high <= height:
            left, upper = draws.randint(0, width - wide), draws.randint(0, height - high)
            return left, upper, left + wide, upper + high
    wide, high = min(width, round(height * ASPECT[1])), min(height, round(width / ASPECT[0]))
    left, upper = (width - wide) // 2, (height - high) // 2
    return left, upper, left + wide, upper + high
