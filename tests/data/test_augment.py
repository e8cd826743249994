"""Geometry against torchvision's own functions for tensors, at given parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import ElasticTransform, functional  # type: ignore[import-untyped]

from hpcddp.core.point import VARIANTS
from hpcddp.data.bigmnist import augment
from hpcddp.data.bigmnist.augment import CounterDraws

COUNT = 64
TIES = 0.0005
"""Share of pixels that may differ: nearest-pixel ties fall one way or the other with the last bit of a sine."""


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(count: int = COUNT) -> Tensor:
    return torch.randint(256, (count, 1, 28, 28), dtype=torch.uint8, generator=generator(0))


def uniform(low: float, high: float, *shape: int) -> Tensor:
    return torch.rand(shape, generator=generator()) * (high - low) + low


def one_by_one(transform: Callable[[Tensor, Tensor], Tensor], parameters: Tensor) -> Tensor:
    return torch.stack([transform(image, parameter) for image, parameter in zip(images(), parameters, strict=True)])


def differing(result: Tensor, expected: Tensor) -> float:
    assert (result.shape, result.dtype) == (expected.shape, torch.uint8)
    return float((result != expected).float().mean())


def test_rotation_is_torchvisions() -> None:
    angles = uniform(-20, 20, COUNT)
    expected = one_by_one(lambda image, angle: functional.rotate(image, float(angle)), angles)
    assert differing(augment.rotate(images(), angles), expected) < TIES


def test_translation_is_torchvisions() -> None:
    shifts = uniform(-5.6, 5.6, COUNT, 2).round()
    expected = one_by_one(lambda image, shift: functional.affine(image, 0, [int(shift[0]), int(shift[1])], 1.0, [0, 0]), shifts)
    assert differing(augment.translate(images(), shifts), expected) == 0


def test_scaling_is_torchvisions() -> None:
    factors = uniform(0.8, 1.2, COUNT)
    expected = one_by_one(lambda image, factor: functional.affine(image, 0, [0, 0], float(factor), [0, 0]), factors)
    assert differing(augment.rescale(images(), factors), expected) < TIES


def test_flipping_is_torchvisions() -> None:
    assert differing(augment.flip(images()), functional.horizontal_flip(images())) == 0


def test_elastic_deformation_is_torchvisions() -> None:
    """Bilinear, rounded; at most one grey level apart where a value lies between two."""
    displacement = augment.smooth_noise(COUNT, 28, partial(torch.rand, generator=generator()))
    expected = one_by_one(lambda image, shift: functional.elastic(image, shift[None]), displacement)
    result = augment.elastic(images(), displacement)
    assert int((result.int() - expected.int()).abs().max()) <= 1
    assert differing(result, expected) < 0.01


def test_the_blur_is_torchvisions() -> None:
    noise = uniform(-1, 1, 3, 2, 28, 28)
    matrix = augment.blur_matrix(28, 5.0)
    expected = functional.gaussian_blur(noise, [41, 41], [5.0, 5.0])
    assert torch.allclose(matrix @ noise @ matrix.T, expected, atol=1e-5)


def test_displacements_are_as_large_as_torchvisions() -> None:
    ours = augment.smooth_noise(400, 28, partial(torch.rand, generator=generator()))
    torch.manual_seed(2)
    theirs = torch.cat([ElasticTransform(alpha=30.0).make_params([images(1)])["displacement"] for _ in range(400)])
    assert ours.shape == theirs.shape
    assert float(ours.std()) == pytest.approx(float(theirs.std()), rel=0.1)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_follows_from_its_generator(variant: str) -> None:
    first, again, other = (augment.augment(variant, images(), generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (variant in ("plain", "flipped"))
    assert torch.equal(first, images()) == (variant == "plain")
    same = images(1).expand(COUNT, -1, -1, -1)
    results = {bytes(image.flatten().tolist()) for image in augment.augment(variant, same, generator())}
    assert (len(results) == 1) == (variant in ("plain", "flipped"))


def test_draws_reach_both_ends_of_the_studys_ranges() -> None:
    """Rotation to 20 degrees, shifts to 0.2 of 28 (6 whole pixels, rounded as torchvision rounds), scale 0.8 to 1.2."""
    dot = torch.zeros(4000, 1, 28, 28, dtype=torch.uint8)
    dot[:, :, 13, 13] = 255
    where = augment.augment("translated", dot, generator()).flatten(1).argmax(dim=1)
    down, right = (where // 28 - 13), (where % 28 - 13)
    assert (int(down.min()), int(down.max()), int(right.min()), int(right.max())) == (-6, 6, -6, 6)
    full = torch.full((4000, 1, 28, 28), 255, dtype=torch.uint8)
    width = (augment.augment("scaled", full, generator())[:, 0, 14] > 0).sum(dim=1)
    assert int(width.min()) == 22
    assert float((width == 28).float().mean()) == pytest.approx(0.5, abs=0.1)
    arm = torch.zeros(4000, 1, 28, 28, dtype=torch.uint8)
    arm[:, :, 14, 27] = 255
    rotated = augment.augment("rotated", arm, generator()).flatten(1)
    rows = (rotated.argmax(dim=1) // 28)[rotated.amax(dim=1) > 0]
    assert int(rows.min()) == 9
    assert int(rows.max()) == 19


def test_what_keeps_the_axes_apart_is_the_same_as_by_a_grid() -> None:
    shifts, factors = uniform(-30, 30, COUNT, 2).round(), uniform(0.3, 3.0, COUNT)
    one, zero = torch.ones(COUNT), torch.zeros(COUNT)
    right, down = (-2 * shifts / 28).unbind(1)
    by_grid = torch.stack([one, zero, right, zero, one, down], dim=1)
    assert torch.equal(augment.translate(images(), shifts), augment._affine(images(), by_grid))
    by_grid = torch.stack([1 / factors, zero, zero, zero, 1 / factors, zero], dim=1)
    assert torch.equal(augment.rescale(images(), factors), augment._affine(images(), by_grid))


def test_numbers_depend_on_seed_sample_and_place_alone() -> None:
    many = CounterDraws("1/0", torch.arange(100))((100, 6))
    single = CounterDraws("1/0", torch.tensor([42]))
    assert torch.equal(torch.cat([single((1, 2)), single((1, 2, 2)).view(1, 4)], dim=1), many[42:43])
    assert not torch.equal(CounterDraws("1/1", torch.arange(100))((100, 6)), many)


def test_numbers_are_uniform_and_independent() -> None:
    """Moments of a million numbers, of neighbours among samples and among draws, within five standard errors."""
    numbers = CounterDraws("seed", torch.arange(72_000_000 - 1000, 72_000_000))((1000, 1000)).double()
    assert 0 <= float(numbers.min()) < float(numbers.max()) < 1
    centred, error = numbers - 0.5, 1e-3
    assert abs(float(centred.mean())) < 5 * error * 12**-0.5
    assert abs(float(centred.square().mean()) - 1 / 12) < 5 * error / 180**0.5
    for first, second in ((centred[1:], centred[:-1]), (centred[:, 1:], centred[:, :-1])):
        assert abs(float((first * second).mean())) < 5 * error / 12
