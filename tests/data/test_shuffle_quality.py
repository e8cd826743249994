"""How good the shuffle is that keeps runs of neighbours: where samples come to stand, and what a model learns from them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from hpcddp.data import sampling
from hpcddp.data.digits import sklearn_digits
from hpcddp.data.sampling import EpochOrder, run_length

RUN, RUNS_LOG2 = 18, 11
SAMPLES = RUN << RUNS_LOG2
COPIES, BATCH, SEEDS = 24, 64, 8


@pytest.fixture
def runs_as_of_72_million(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sets are shuffled in runs of 18, too."""
    assert run_length(72_000_000) == RUN
    monkeypatch.setattr(sampling, "MOST_BLOCKS_LOG2", RUNS_LOG2)


@pytest.mark.usefixtures("runs_as_of_72_million")
def test_runs_come_to_stand_anywhere() -> None:
    """Neighbours within a run stay neighbours; two that lie side by side are as far apart as two places drawn at random.

    Compared are the distances of all pairs of neighbouring runs with the distribution of |U - V|: 1.95 / sqrt(n) is what chance
    exceeds in one case of a thousand (Kolmogorov-Smirnov).
    """
    assert run_length(SAMPLES) == RUN
    places = EpochOrder(SAMPLES, 1, 0).samples_at(torch.arange(SAMPLES)).argsort()
    by_run = places.view(-1, RUN)
    assert bool((by_run.diff(dim=1) == 1).all())
    apart = (by_run[1:, 0] - by_run[:-1, 0]).abs().double().sort().values / SAMPLES
    expected = 2 * apart - apart.square()
    steps = torch.arange(1, len(apart) + 1) / len(apart)
    assert float((expected - steps).abs().max()) < 1.95 / len(apart) ** 0.5


@pytest.mark.dear
@pytest.mark.usefixtures("runs_as_of_72_million")
def test_a_linear_model_learns_as_much_from_runs_as_from_single_samples() -> None:
    """Accuracy after an epoch, mean of eight seeds: within twice what chance makes of the same between two true permutations.

    Where runs are long and hold one class each, the same comparison finds it: it would find a shuffle that is too coarse.
    """
    runs, single = (accuracies(order, by_class=False) for order in (in_runs, permuted))
    spread = float(torch.cat([runs - runs.mean(), single - single.mean()]).std())
    assert abs(float(runs.mean() - single.mean())) < 2 * spread * (2 / SEEDS) ** 0.5
    coarse, fine = (accuracies(order, by_class=True) for order in (in_long_runs, permuted))
    assert float(fine.mean() - coarse.mean()) > 4 * spread * (2 / SEEDS) ** 0.5


def in_runs(samples: int, seed: int) -> Tensor:
    return EpochOrder(samples, seed, 0).samples_at(torch.arange(samples))


def permuted(samples: int, seed: int) -> Tensor:
    return torch.randperm(samples, generator=torch.Generator().manual_seed(seed))


def in_long_runs(samples: int, seed: int) -> Tensor:
    """Runs of half a class, in random order."""
    run = samples // 20
    firsts = torch.randperm(20, generator=torch.Generator().manual_seed(seed)) * run
    return (firsts[:, None] + torch.arange(run)).flatten()


def accuracies(order_of: Callable[[int, int], Tensor], *, by_class: bool) -> Tensor:
    """Of a linear model after an epoch of copies of scikit-learn's digits, each with noise of its own."""
    digits = sklearn_digits()
    images, labels = digits.train_images.flatten(1).float() / 255, digits.train_labels
    noise = torch.Generator().manual_seed(0)
    pixels = (images + 0.5 * torch.randn(COPIES, *images.shape, generator=noise)).flatten(0, 1)
    classes = labels.repeat(COPIES)
    if by_class:
        pixels, classes = pixels[classes.argsort()], classes.sort().values
    samples = len(classes) // (20 * RUN) * (20 * RUN)
    held_out = digits.eval_images.flatten(1).float() / 255
    found = []
    for seed in range(SEEDS):
        weights = trained(pixels, classes, order_of(samples, seed))
        found.append(((held_out @ weights).argmax(dim=1) == digits.eval_labels).double().mean())
    return torch.stack(found) * 100


def trained(pixels: Tensor, classes: Tensor, order: Tensor) -> Tensor:
    """Softmax regression by gradient descent, one pass."""
    weights = torch.zeros(pixels.shape[1], 10)
    for indices in order.split(BATCH):  # type: ignore[no-untyped-call]
        batch, truth = pixels[indices], functional.one_hot(classes[indices], 10)
        weights -= 0.02 * batch.T @ (functional.softmax(batch @ weights, dim=1) - truth) / len(indices)
    return weights
