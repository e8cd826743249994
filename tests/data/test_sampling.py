"""The order of an epoch: every sample once whatever the number of ranks, for each form of data on disk, and how good it is."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from hpcddp.core.point import Data
from hpcddp.data import Source, TrainLoader, open_source, sampling
from hpcddp.data import sampling as order_module
from hpcddp.data.loading import read_batch
from hpcddp.data.sampling import EpochOrder, Share, eval_ranges, generator_for, run_length, train_indices
from hpcddp.data.small_sets import sklearn_digits
from hpcddp.data.source import to_bytes
from hpcddp.data.writing.pack import pack_imagenet
from hpcddp.data.writing.prepare import prepare_bigmnist
from tests.data.files import noise_digits, write_picture

BIGMNIST = 72_000_000


def positions(order: EpochOrder, samples: int) -> torch.Tensor:
    return order.samples_at(torch.arange(samples))


@given(samples=st.integers(1, 3000), seed=st.integers(0, 2**40), epoch=st.integers(0, 1000), blocks_log2=st.integers(0, 12))
def test_every_epoch_visits_every_sample_once(samples: int, seed: int, epoch: int, blocks_log2: int) -> None:
    before = order_module.MOST_BLOCKS_LOG2
    order_module.MOST_BLOCKS_LOG2 = blocks_log2
    try:
        order = EpochOrder(samples, seed, epoch)
    finally:
        order_module.MOST_BLOCKS_LOG2 = before
    assert positions(order, samples).sort().values.tolist() == list(range(samples))


def test_small_sets_are_shuffled_sample_by_sample() -> None:
    """Up to 2^22 samples no two neighbours stay together on purpose: some 1 of 1,000 adjacent pairs by chance."""
    visited = positions(EpochOrder(60_000, 1, 0), 60_000)
    assert int((visited.diff() == 1).sum()) < 60


def test_72_million_samples_are_shuffled_in_runs_of_18() -> None:
    order = EpochOrder(BIGMNIST, 1, 0)
    assert (order._runs.numel(), order._runs.element_size()) == (4_000_000, 4)
    assert 17_000 <= int((order.samples_at(torch.arange(18_000)).diff() == 1).sum()) < 17_010


def test_each_epoch_and_each_seed_has_its_own_order() -> None:
    orders = [positions(EpochOrder(500, seed, epoch), 500).tolist() for seed, epoch in ((1, 0), (1, 1), (2, 0))]
    assert orders[0] == positions(EpochOrder(500, 1, 0), 500).tolist()
    assert orders[0] != orders[1]
    assert orders[0] != orders[2]


@settings(max_examples=200)
@given(samples=st.integers(0, 300), batch_size=st.integers(1, 40), ranks=st.integers(1, 9))
def test_evaluation_counts_every_sample_once(samples: int, batch_size: int, ranks: int) -> None:
    shares = [eval_ranges(samples, Share(batch_size, rank, ranks)) for rank in range(ranks)]
    assert sorted(index for share in shares for batch in share for index in batch) == list(range(samples))
    assert all(0 < len(batch) <= batch_size for share in shares for batch in share)
    sizes = [sum(map(len, share)) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_neighbouring_seeds_draw_unrelated_numbers() -> None:
    first, second = (torch.rand(4, generator=generator_for(*words)).tolist() for words in ((1, 11), (11, 1)))
    assert first != second


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
    """Neighbours within a run stay so; two runs that lie side by side are as far apart as two places drawn at random."""
    assert run_length(SAMPLES) == RUN
    places = EpochOrder(SAMPLES, 1, 0).samples_at(torch.arange(SAMPLES)).argsort()
    by_run = places.view(-1, RUN)
    assert bool((by_run.diff(dim=1) == 1).all())
    apart = (by_run[1:, 0] - by_run[:-1, 0]).abs().double().sort().values / SAMPLES
    expected = 2 * apart - apart.square()  # the distribution of |U - V|
    steps = torch.arange(1, len(apart) + 1) / len(apart)
    assert float((expected - steps).abs().max()) < 1.95 / len(apart) ** 0.5  # by chance one in a thousand (Kolmogorov-Smirnov)


@pytest.mark.soak
@pytest.mark.usefixtures("runs_as_of_72_million")
def test_a_linear_model_learns_as_much_from_runs_as_from_single_samples() -> None:
    """Mean accuracy of eight seeds, within twice what chance makes of two true permutations; runs of half a class are found."""
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


RANKS = (1, 2, 3, 7)
FORMS = ("shards", "virtual", "augmented", "tar")
VARIANTS = ("plain", "rotated")


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Source]:
    """A source of each form: 120 samples of digits in shards of 40, 14 pictures in tar files of 5."""
    folder = tmp_path_factory.mktemp("data")
    for name, copies in (("all", 3), ("one", 1)):
        digits = noise_digits(20, 3)
        prepare_bigmnist(
            folder / name, digits=digits, copies=copies, variants=VARIANTS, seed=1, progress=lambda *_: None, shard_samples=40
        )
    for split, count in (("train", 14), ("val", 1)):
        for number in range(count):
            write_picture(folder / "pictures" / split / "n0" / f"{number}.JPEG", (24, 20), seed=number)
    pack_imagenet(folder / "pictures", folder / "tar", progress=lambda *_: None, samples_per_shard=5)

    def source(form: str) -> Source:
        if form == "tar":
            return open_source(Data(name="imagenet"), "train", str(folder / "tar"))
        data = Data(name="bigmnist", copies=3, variants=VARIANTS, form=form)  # type: ignore[arg-type]
        return open_source(data, "train", str(folder / ("all" if form == "shards" else "one")))

    return source


@pytest.mark.dear
def test_72_million_samples_come_once_on_seven_ranks() -> None:
    """A bit for each sample: all that the ranks' steps read is different, and as much as fits whole global batches."""
    ranks, batch, read = 7, 2_000_000 // 7, torch.zeros(BIGMNIST, dtype=torch.bool)
    order, steps = EpochOrder(BIGMNIST, 1, 0), BIGMNIST // (batch * ranks)
    for step in range(steps):
        for rank in range(ranks):
            read[train_indices(order, Share(batch, rank, ranks), range(step, step + 1))[0]] = True
    assert int(read.sum()) == steps * ranks * batch > BIGMNIST - batch * ranks


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.tuples(st.sampled_from(RANKS), st.integers(1, 2)),
    begin=st.tuples(st.integers(0, 2**40), st.integers(0, 100), st.integers(0, 1)),
)
def test_ranks_read_the_epochs_order_between_them(
    opened: Callable[[str], Source], form: str, shape: tuple[int, int], begin: tuple[int, int, int]
) -> None:
    (ranks, batch), (seed, epoch, first) = shape, begin
    source, steps = opened(form), slice(first, None)
    loaders = [
        TrainLoader(source, batch_size=batch, rank=rank, ranks=ranks, workers=0, seed=seed, pin_memory=False)
        for rank in range(ranks)
    ]
    count = len(source) // (ranks * batch) * ranks * batch
    order = EpochOrder(len(source), seed, epoch).samples_at(torch.arange(count))
    assert len(set(order.tolist())) == count
    epochs = [list(loader.epoch(epoch, first)) for loader in loaders]
    found = [part for step in zip(*epochs, strict=True) for part in step]
    expected = [read_batch(source, indices, f"{seed}/{epoch}") for indices in order.view(-1, ranks, batch)[steps].flatten(0, 1)]
    for (images, labels), (due_images, due_labels) in zip(found, expected, strict=True):
        assert torch.equal(images, due_images)
        assert torch.equal(labels, due_labels)


@pytest.mark.parametrize(
    ("samples", "seed", "epoch", "crc"),
    [
        (60_000, 1, 0, 2109566273),
        (1_281_167, 7, 3, 1037511687),
        (BIGMNIST, 1, 0, 2098936810),
        (BIGMNIST, 2, 5, 3975233213),
    ],
)
def test_the_order_is_what_it_always_was(samples: int, seed: int, epoch: int, crc: int) -> None:
    """Recorded before indices were one tensor: an epoch's last 60,000, so that runs that were begun before go on alike."""
    last = EpochOrder(samples, seed, epoch).samples_at(torch.arange(samples - 60_000, samples))
    assert zlib.crc32(to_bytes(last)) == crc
