"""How fast bigMNIST's variants are made, and whether they are what they should be: `python -m tests.bench.generate_bigmnist`.

Against the usual way, sample by sample with torchvision's transforms on PIL images, on one processor each: samples per second
over all six variants, as a copy of bigMNIST has as many of each. In each of several rounds both are timed; a figure is the median
over rounds of a ratio within the round, since other work on the machine slows neighbours alike. Then `prepare_bigmnist` with one
and with two processes, writing and checksums with it, again as a ratio within a round.

What the variants are: mean and variance of pixels over digits, and what each does to a picture from which it can be read off (the
angle of a bar, its length, where a spot went), as distributions of ours and of the usual way's draws. The digits are
scikit-learn's with the margin of four pixels that MNIST's have: torchvision's ElasticTransform darkens what reaches the border
twice (its fill of 0 is mixed in where grid_sample has mixed it in already).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional
from torchvision import transforms  # type: ignore[import-untyped]

from hpcddp.core.point import VARIANTS
from hpcddp.data.bigmnist.augment import augment
from hpcddp.data.small_sets import Digits, sklearn_digits
from hpcddp.data.writing.prepare import BATCH, prepare_bigmnist

TIMES_BOUND = 20.0
TWO_PROCESSES_BOUND = 0.65
"""Of one process's time, with two processors."""

DRAWS = 3000
APART_BOUND = 1.82 * math.sqrt(2 / DRAWS)
"""The largest distance that chance makes in 99.7 % of cases between two distributions of so many draws (Kolmogorov-Smirnov)."""
STANDARD_ERRORS = 4.0
"""Between the means, and the variances, of ours and the usual way's: chance makes more once in 16,000 cases; there are 12."""

OURS_DIGITS, THEIRS_DIGITS = 12_288, 400
"""Timed in a round, of each variant."""

USUAL = {
    "plain": [],
    "rotated": [transforms.RandomRotation(20)],
    "translated": [transforms.RandomAffine(0, translate=(0.2, 0.2))],
    "scaled": [transforms.RandomAffine(0, scale=(0.8, 1.2))],
    "flipped": [transforms.RandomHorizontalFlip(1)],
    "elastic": [transforms.ElasticTransform(alpha=30.0)],
}
"""The transforms of the 2025 RCC study."""


def main() -> int:
    """Prints rates and distances, and one line of JSON; 1 where a bound does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    warnings.simplefilter("ignore")  # PIL's of a parameter's name
    torch.set_num_threads(1)
    torch.manual_seed(5)
    images = _digits_with_margin()
    times = _print_rates([_seconds_a_sample(images) for _ in range(rounds)])
    shares = [_share_of_two_processes() for _ in range(rounds)]
    share = statistics.median(shares)
    print(f"two processes take {share:.2f} of one's time ({min(shares):.2f} to {max(shares):.2f} in {rounds} rounds)")
    apart, errors = _apart(), _errors(images)
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    holds = times >= TIMES_BOUND and share <= TWO_PROCESSES_BOUND and apart <= APART_BOUND and errors <= STANDARD_ERRORS
    figures = {"times": round(times, 1), "two_processes": round(share, 2), "apart": round(apart, 3), "errors": round(errors, 1)}
    bounds = {"bound": TIMES_BOUND, "two_processes_bound": TWO_PROCESSES_BOUND, "apart_bound": round(APART_BOUND, 3)}
    bounds |= {"errors_bound": STANDARD_ERRORS}
    print(json.dumps({"bench": "generate_bigmnist", **figures, **bounds, "holds": holds}))
    return 0 if holds else 1


def usual(variant: str, images: Tensor) -> Tensor:
    """The variant as the usual way makes it, sample by sample."""
    steps = transforms.Compose([*USUAL[variant], transforms.PILToTensor()])
    return torch.stack([steps(Image.fromarray(image)) for image in images[:, 0].numpy()])


def ours(variant: str, images: Tensor, seed: int = 1) -> Tensor:
    """The variant as preparing makes it."""
    generator = torch.Generator().manual_seed(seed)
    return torch.cat([augment(variant, part, generator) for part in torch.split(images, BATCH)])


def _digits_with_margin() -> Tensor:
    """scikit-learn's, as large as MNIST's: 20 x 20 pixels in 28 x 28."""
    small = functional.interpolate(sklearn_digits().train_images.float(), size=(20, 20), mode="bilinear", antialias=True)
    return functional.pad(small.round().to(torch.uint8), (4, 4, 4, 4))


def _seconds_a_sample(digits: Tensor) -> dict[str, tuple[float, float]]:
    """Of ours and of the usual way, by variant."""
    images = digits.repeat(-(-OURS_DIGITS // len(digits)), 1, 1, 1)[:OURS_DIGITS]
    return {variant: (_timed(ours, variant, images), _timed(usual, variant, images[:THEIRS_DIGITS])) for variant in VARIANTS}


def _timed(make: Callable[[str, Tensor], Tensor], variant: str, images: Tensor) -> float:
    begin_s = time.perf_counter()
    make(variant, images)
    return (time.perf_counter() - begin_s) / len(images)


def _print_rates(rounds: list[dict[str, tuple[float, float]]]) -> float:
    """How many times as fast ours makes a copy of all variants."""
    for variant in VARIANTS:
        our_s, their_s = (statistics.median(each[variant][side] for each in rounds) for side in (0, 1))
        print(f"{variant:<12} {1 / our_s:12,.0f} samples/s   {1 / their_s:8,.0f} the usual way   {their_s / our_s:8.1f} times")
    ratios = [sum(theirs for _, theirs in each.values()) / sum(own for own, _ in each.values()) for each in rounds]
    rate = len(VARIANTS) / statistics.median(sum(own for own, _ in each.values()) for each in rounds)
    print(f"{'all six':<12} {rate:12,.0f} samples/s   {statistics.median(ratios):.1f} times the usual way")
    return statistics.median(ratios)


def _share_of_two_processes() -> float:
    """720,000 samples in 20 shards."""
    seconds = {}
    digits = _random_digits(6000)
    for processes in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            begin_s = time.perf_counter()
            prepare_bigmnist(
                Path(folder),
                digits=digits,
                copies=20,
                variants=VARIANTS,
                seed=1,
                progress=lambda done, total: None,
                processes=processes,
                shard_samples=36_000,
            )
            seconds[processes] = time.perf_counter() - begin_s
    return seconds[2] / seconds[1]


def _random_digits(count: int) -> Digits:
    images = torch.randint(256, (count, 1, 28, 28), dtype=torch.uint8)
    labels = torch.arange(count) % 10
    return Digits("sklearn", "made up", images, labels, images[:10], labels[:10])


def _apart() -> float:
    """The largest distance between the distributions of what our draws and the usual way's do to a picture."""
    farthest = 0.0
    for variant, (picture, measure) in MEASURES.items():
        images = picture.expand(DRAWS, 1, -1, -1)
        found, expected = (measure(make(variant, images)) for make in (ours, usual))
        apart = max(_distance(ours_of, theirs_of) for ours_of, theirs_of in zip(found, expected, strict=True))
        spread = ", ".join(f"{float(of.min()):.1f} to {float(of.max()):.1f}" for of in found)
        print(f"{variant:<12} {spread}; at most {apart:.3f} from the usual way's distribution, chance makes {APART_BOUND:.3f}")
        farthest = max(farthest, apart)
    return farthest


def _distance(first: Tensor, second: Tensor) -> float:
    at = torch.cat([first, second]).sort().values
    shares = [torch.searchsorted(each.sort().values, at, right=True) / len(each) for each in (first, second)]
    return float((shares[0] - shares[1]).abs().max())


def _errors(images: Tensor) -> float:
    """How many standard errors lie at most between ours and the usual way's mean and variance of a picture's pixels."""
    largest = 0.0
    for variant in VARIANTS:
        found, expected = (make(variant, images).double().flatten(1) for make in (ours, usual))
        for name, of in STATISTICS.items():
            apart = of(found) - of(expected)  # of the same digit
            error = float(apart.mean().abs() / (apart.std() / math.sqrt(len(apart)))) if bool(apart.any()) else 0.0
            print(f"{variant:<12} {name} {float(of(found).mean()):8,.1f}, the usual way {float(of(expected).mean()):8,.1f}")
            largest = max(largest, error)
    return largest


STATISTICS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda pixels: pixels.mean(1),
    "variance": lambda pixels: pixels.var(1),
}
"""Of each picture, N x pixels."""


def _moments(images: Tensor) -> tuple[Tensor, ...]:
    """Of each picture's brightness: middle (x, y), and spread (xx, yy, xy) about it; pixels."""
    weights = images[:, 0].double()
    weights /= weights.sum((1, 2), keepdim=True)
    at = torch.arange(28, dtype=torch.float64)
    x, y = (weights * at).sum((1, 2)), (weights * at[:, None]).sum((1, 2))
    across, down = at[None, None] - x[:, None, None], at[None, :, None] - y[:, None, None]
    return x, y, (weights * across**2).sum((1, 2)), (weights * down**2).sum((1, 2)), (weights * across * down).sum((1, 2))


def _shift_px(images: Tensor) -> tuple[Tensor, ...]:
    x, y, *_ = _moments(images)
    return x - 13.5, y - 13.5


def _angle_deg(images: Tensor) -> tuple[Tensor, ...]:
    _, _, xx, yy, xy = _moments(images)
    return (torch.rad2deg(0.5 * torch.atan2(2 * xy, xx - yy)),)


def _length_px(images: Tensor) -> tuple[Tensor, ...]:
    return ((12 * _moments(images)[2]).sqrt(),)


def _picture(width: int, height: int) -> Tensor:
    """A white rectangle in the middle."""
    image = torch.zeros(1, 28, 28, dtype=torch.uint8)
    image[:, 14 - height // 2 : 14 + height // 2, 14 - width // 2 : 14 + width // 2] = 255
    return image


MEASURES: dict[str, tuple[Tensor, Callable[[Tensor], tuple[Tensor, ...]]]] = {
    "rotated": (_picture(20, 4), _angle_deg),
    "translated": (_picture(4, 4), _shift_px),
    "scaled": (_picture(16, 4), _length_px),
    "elastic": (_picture(6, 6), _shift_px),
}
"""A picture from which the variant's draws can be read off, and how: degrees and pixels."""


if __name__ == "__main__":
    raise SystemExit(main())
