from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcddp.data import sampling as order_module
from hpcddp.data.sampling import EpochOrder, Share, eval_ranges, generator_for, train_indices

BIGMNIST = 72_000_000


def positions(order: EpochOrder, samples: int) -> torch.Tensor:
    return order.samples_at(torch.arange(samples))


@given(samples=st.integers(1, 3000), seed=st.integers(0, 2**40), epoch=st.integers(0, 1000), blocks_log2=st.integers(0, 12))
def test_every_epoch_visits_every_sample_once(samples: int, seed: int, epoch: int, blocks_log2: int) -> None:
    """The order is a bijection, whatever the length of the runs and however short the last of them is."""
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


@pytest.mark.dear
def test_72_million_samples_are_shuffled_in_runs_of_18() -> None:
    """bigMNIST's order is a bijection in runs of 18, its state at most 4.2 million numbers of 4 bytes."""
    order = EpochOrder(BIGMNIST, 1, 0)
    assert order._runs.numel() == 4_000_000
    assert order._runs.element_size() == 4
    visited = torch.zeros(BIGMNIST, dtype=torch.bool)
    for part in torch.split(torch.arange(BIGMNIST), 8_000_000):
        visited[order.samples_at(part)] = True
    assert bool(visited.all())
    assert 17_000 <= int((order.samples_at(torch.arange(18_000)).diff() == 1).sum()) < 17_010


def test_each_epoch_and_each_seed_has_its_own_order() -> None:
    """Equal (seed, epoch) give equal orders, others differ."""
    orders = [positions(EpochOrder(500, seed, epoch), 500).tolist() for seed, epoch in ((1, 0), (1, 1), (2, 0))]
    assert orders[0] == positions(EpochOrder(500, 1, 0), 500).tolist()
    assert orders[0] != orders[1]
    assert orders[0] != orders[2]


@given(samples=st.integers(12, 400), global_batch=st.sampled_from([1, 2, 4, 6, 12]), epoch=st.integers(0, 5))
def test_global_batches_do_not_depend_on_the_number_of_ranks(samples: int, global_batch: int, epoch: int) -> None:
    """Rank r of n takes the r-th part of the batch that a single rank would take, in its order."""
    steps = samples // global_batch

    def rank_batches(rank: int, ranks: int) -> Any:
        share = Share(global_batch // ranks, rank, ranks)
        return train_indices(EpochOrder(samples, 3, epoch), share, range(steps)).tolist()

    single = rank_batches(0, 1)
    for ranks in (count for count in (2, 3, 4, 6) if global_batch % count == 0):
        shares = zip(*(rank_batches(rank, ranks) for rank in range(ranks)), strict=True)
        assert [list(itertools.chain(*parts)) for parts in shares] == single


@settings(max_examples=200)
@given(samples=st.integers(0, 300), batch_size=st.integers(1, 40), ranks=st.integers(1, 9))
def test_evaluation_counts_every_sample_once(samples: int, batch_size: int, ranks: int) -> None:
    """Over all ranks every sample exactly once, in batches of at most batch_size, evenly shared."""
    shares = [eval_ranges(samples, Share(batch_size, rank, ranks)) for rank in range(ranks)]
    assert sorted(index for share in shares for batch in share for index in batch) == list(range(samples))
    assert all(0 < len(batch) <= batch_size for share in shares for batch in share)
    sizes = [sum(map(len, share)) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_neighbouring_seeds_draw_unrelated_numbers() -> None:
    """Words are hashed whole: (1, 11) and (11, 1) differ."""
    first, second = (torch.rand(4, generator=generator_for(*words)).tolist() for words in ((1, 11), (11, 1)))
    assert first != second
