"""bigMNIST's five augmentations, on whole batches with parameters of each sample's own.

Ranges are those of the 2025 RCC study (RandomRotation(20), RandomAffine(translate=0.2), RandomAffine(scale=(0.8, 1.2)),
RandomHorizontalFlip(p=1), ElasticTransform(alpha=30)); geometry, interpolation and fill (0) are torchvision's for tensors.
Parameters come from a generator or by counting: each number a hash of a seed, a sample and a number.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor
from torch.nn import functional

MAX_ROTATION_DEG = 20.0
MAX_TRANSLATION = 0.2
"""Of the image's size, along each axis."""
SCALE = (0.8, 1.2)
ELASTIC_ALPHA = 30.0
ELASTIC_SIGMA = 5.0
"""torchvision's default; pixels."""


Uniform = Callable[[tuple[int, ...]], Tensor]
"""Numbers in 0..1 of that shape, whose first size is that of the images."""


def augment(variant: str, images: Tensor, generator: Generator) -> Tensor:
    """`images` (uint8, N x 1 x S x S) as `variant`, parameters drawn from `generator`; KeyError for an unknown variant."""
    return augment_by(variant, images, functools.partial(torch.rand, generator=generator))


def augment_by(variant: str, images: Tensor, uniform: Uniform) -> Tensor:
    """The same with parameters from numbers of the caller's own."""
    return _VARIANTS[variant](images, uniform)


def rotate(images: Tensor, angles_deg: Tensor) -> Tensor:
    """Counter-clockwise about the centre, nearest pixel; one angle per image."""
    cos, sin = torch.cos(torch.deg2rad(angles_deg)), torch.sin(torch.deg2rad(angles_deg))
    zero = torch.zeros_like(cos)
    return _affine(images, torch.stack([cos, -sin, zero, sin, cos, zero], dim=1))


def translate(images: Tensor, shifts_px: Tensor) -> Tensor:
    """By whole pixels to the right and down; N x 2."""
    one = torch.ones(len(images))
    right, down = (-2 * shifts_px.float() / images.shape[-1]).unbind(1)  # half the size is 1 in affine_grid's coordinates
    size = images.shape[-1]
    return _picked(images, _nearest(one, down, size), _nearest(one, right, size))


def rescale(images: Tensor, factors: Tensor) -> Tensor:
    """About the centre, nearest pixel; one factor per image, above 1 enlarges."""
    places = _nearest(1 / factors, torch.zeros_like(factors), images.shape[-1])
    return _picked(images, places, places)


def flip(images: Tensor) -> Tensor:
    """Left to right: mirrors digits, always, as the original study did; a mirrored 2 keeps the label 2."""
    return images.flip(-1)


def elastic(images: Tensor, displacement: Tensor) -> Tensor:
    """Bilinear; displacement is N x S x S x 2 (x, y), where the image's whole size is 2."""
    size = images.shape[-1]
    centres = (2 * torch.arange(size) + 1) / size - 1
    identity = torch.stack(torch.meshgrid(centres, centres, indexing="xy"), dim=-1)
    return _sample(images, identity + displacement, "bilinear")


def smooth_noise(count: int, size: int, uniform: Uniform) -> Tensor:
    """Displacements for `elastic`: uniform noise in -1..1, blurred, times alpha / size; count x size x size x 2."""
    noise = uniform((count, 2, size, size)) * 2 - 1
    blur = blur_matrix(size, ELASTIC_SIGMA)
    return (blur @ noise @ blur.T).permute(0, 2, 3, 1) * (ELASTIC_ALPHA / size)


def blur_matrix(size: int, sigma: float) -> Tensor:
    """The matrix M for which M @ image @ M.T is a Gaussian blur with reflected borders; size x size.

    The kernel is cut off at 4 sigma, as ElasticTransform does; at 28 pixels two small products beat two convolutions of 41.
    """
    half = int(8 * sigma + 1) // 2
    offsets = torch.arange(-half, half + 1)
    kernel = torch.softmax(-0.5 * (offsets / sigma) ** 2, dim=0)
    source = torch.arange(size)[:, None] + offsets
    reflected = (size - 1) - ((size - 1) - source.abs()).abs()  # folds once on each side: half < size
    return torch.zeros(size, size).scatter_add_(1, reflected, kernel.expand(size, -1))


def _nearest(factors: Tensor, shifts: Tensor, size: int) -> Tensor:
    """Along one axis, which pixel each one of the result comes from: N x size, from 1, and 0 or size + 1 outside.

    In affine_grid's coordinates, and rounded as grid_sample rounds.
    """
    centres = (2 * torch.arange(size) + 1) / size - 1
    at = factors[:, None] * centres + shifts[:, None]
    return (((at + 1) * size - 1) / 2).round_().clamp_(-1, size).long().add_(1)


def _picked(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Pixels at `rows` x `columns`, zeros outside: where the axes do not mix, eight times as fast as by affine_grid."""
    bordered = functional.pad(images, (1, 1, 1, 1)).flatten(1)
    at = (rows * (images.shape[-1] + 2))[:, :, None] + columns[:, None, :]
    return bordered.gather(1, at.flatten(1)).view(images.shape)


def _affine(images: Tensor, inverse: Tensor) -> Tensor:
    """Where each output pixel's centre comes from: `inverse` is N x 6, the rows of a 2 x 3 matrix."""
    grid = functional.affine_grid(inverse.view(-1, 2, 3), list(images.shape), align_corners=False)
    return _sample(images, grid, "nearest")


def _sample(images: Tensor, grid: Tensor, mode: str) -> Tensor:
    sampled = functional.grid_sample(images.float(), grid, mode=mode, padding_mode="zeros", align_corners=False)
    return sampled.round_().to(torch.uint8)


def _between(low: float, high: float, numbers: Tensor) -> Tensor:
    return numbers * (high - low) + low


def _translated(images: Tensor, uniform: Uniform) -> Tensor:
    most = MAX_TRANSLATION * images.shape[-1]
    return translate(images, _between(-most, most, uniform((len(images), 2))).round())


_VARIANTS: dict[str, Callable[[Tensor, Uniform], Tensor]] = {
    "plain": lambda images, _: images,
    "rotated": lambda images, uniform: rotate(images, _between(-MAX_ROTATION_DEG, MAX_ROTATION_DEG, uniform((len(images),)))),
    "translated": _translated,
    "scaled": lambda images, uniform: rescale(images, _between(*SCALE, uniform((len(images),)))),
    "flipped": lambda images, _: flip(images),
    "elastic": lambda images, uniform: elastic(images, smooth_noise(len(images), images.shape[-1], uniform)),
}


_STEP = 0x9E3779B97F4A7C15 - (1 << 64)
_FACTORS = (0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64))
"""SplitMix64's constants (Steele, Lea, Flood 2014), as int64 has them: products and sums wrap around."""


class CounterDraws:
    """Uniform numbers of samples: equal `seed` and index give equal numbers, call after call the next ones."""

    def __init__(self, seed: str, indices: Tensor) -> None:
        digest = hashlib.sha256(seed.encode()).digest()
        self._states = _mixed(_mixed(indices + 1) ^ int.from_bytes(digest[:8], "little", signed=True))
        self._drawn = 0

    def __call__(self, shape: tuple[int, ...]) -> Tensor:
        """In 0..1, multiples of 2^-24; the first size is the number of samples."""
        count = math.prod(shape[1:])
        counters = torch.arange(self._drawn + 1, self._drawn + count + 1) * _STEP
        self._drawn += count
        return ((_mixed(self._states[:, None] + counters) >> 40) & 0xFFFFFF).float().div_(1 << 24).view(shape)


def _mixed(numbers: Tensor) -> Tensor:
    """SplitMix64's output function."""
    for bits, factor in zip((30, 27), _FACTORS, strict=True):
        numbers = (numbers ^ _shifted(numbers, bits)) * factor
    return numbers ^ _shifted(numbers, 31)


def _shifted(numbers: Tensor, bits: int) -> Tensor:
    """To the right, zeros from the left."""
    return (numbers >> bits) & ((1 << (64 - bits)) - 1)
