from __future__ import annotations

import torch

from hpcddp.data.bigmnist.counter_draws import CounterDraws


def test_numbers_depend_on_seed_sample_and_place_alone() -> None:
    """Not on the other samples, nor on how a sample's numbers are shaped."""
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
