"""Transfer, peer wait and what is hidden, by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcddp.analysis.records.buckets import RunBuckets, assemble
from hpcddp.analysis.records.clocks import clock_error_ns, to_rank_0
from hpcddp.analysis.records.csv_reader import Columns
from hpcddp.analysis.records.exchange_windows import ExchangeWindows
from hpcddp.analysis.records.steps import StepSpan
from hpcddp.analysis.runs.communication import (
    algorithm_bandwidth,
    bus_bandwidth,
    communication,
    exchange,
    newly_covered,
    overlap_share,
)
from hpcddp.core.attempt_records import ClockOffset, RankClock, RankEnd

START_NS = 1_700_000_000_000_000_000


def array(*rows: Sequence[int]) -> Any:
    return np.array(rows, dtype=np.int64)


def one_step(**changes: Any) -> RunBuckets:
    """A step of two ranks and two buckets. The first travels from 50, when rank 1 is ready, the second from 80.

    rank 0 waits from 60 to 100; its buckets are done at 60 and 95. rank 1 waits from 80 to 104; done at 62 and 97.
    """
    complete = RunBuckets(
        hosts=("a", "b"),
        clock_error_ns=1,
        start_ns=array([0], [0]),
        begin_ns=array([60], [80]),
        end_ns=array([100], [104]),
        step=np.array([0, 0]),
        index=np.array([0, 1]),
        size_bytes=np.array([100, 300]),
        ready_ns=array([20, 60], [50, 80]),
        done_ns=array([60, 95], [62, 97]),
    )
    return dataclasses.replace(complete, **changes)


def test_a_bucket_travels_once_every_rank_is_ready() -> None:
    """Of its 40 exposed, rank 0 waits 20 for rank 1 and the rest is transfer, 5 of it putting averages back; rank 1 waits for
    nobody.
    """
    found = exchange(one_step())
    assert found.peer_wait_ns.tolist() == [[20], [0]]
    assert found.transfer_ns.tolist() == [[20], [24]]


def test_what_travels_while_a_rank_computes_is_hidden() -> None:
    """Rank 0: 50 to 60. Rank 1: 50 to 62. Hidden and exposed together: 10 + 15 and 12 + 17."""
    found = exchange(one_step())
    assert found.hidden_ns.tolist() == [[10], [12]]
    assert found.busy_ns.tolist() == [[25], [29]]


def test_slack_is_how_long_before_the_last_rank() -> None:
    """Rank 1 was last at both: 50 - 20 and 80 - 60."""
    assert exchange(one_step()).slack_ns.tolist() == [[30, 20], [0, 0]]


def test_two_all_reduces_at_a_time_are_counted_once() -> None:
    """gloo: the second travels from 55 to 70, the first from 50 to 90: 40 in all, not 55."""
    run = one_step(ready_ns=array([20, 30], [50, 55]), done_ns=array([90, 70], [90, 70]), begin_ns=array([50], [50]))
    found = exchange(run)
    assert found.busy_ns.tolist() == [[40], [40]]
    assert found.own_ns.tolist() == [[40, 0], [40, 0]]


def test_buckets_in_order_have_times_of_their_own() -> None:
    """NCCL: the second is ready at 55, but travels when the first is done."""
    run = one_step(ready_ns=array([20, 30], [50, 55]), done_ns=array([70, 95], [70, 95]))
    assert exchange(run).own_ns.tolist() == [[20, 25], [20, 25]]


def test_clocks_that_err_make_no_negative_times() -> None:
    """Rank 0's bucket seems to be done before rank 1 was ready: it took no time there."""
    found = exchange(one_step(ready_ns=array([20, 60], [61, 99])))
    assert found.busy_ns.tolist() == [[0], [1]]
    assert found.peer_wait_ns.tolist() == [[35], [0]]


def test_a_step_without_buckets_waits_for_nobody() -> None:
    """What is exposed there is transfer: the end of backward()."""
    run = one_step(start_ns=array([0, 110], [0, 110]), begin_ns=array([60, 150], [80, 151]), end_ns=array([100, 153], [104, 152]))
    found = exchange(run)
    assert found.transfer_ns.tolist() == [[20, 3], [24, 1]]
    assert found.busy_ns.tolist() == [[25, 0], [29, 0]]


def test_the_union_within_windows() -> None:
    """0-10, 2-5 and 8-20 cut to 1-15 cover 9, nothing new, 5."""
    cut = np.full(3, 1), np.full(3, 15)
    begin, end = newly_covered(np.array([0, 2, 8]), np.array([10, 5, 20]), *cut)
    assert np.maximum(end - begin, 0).tolist() == [9, 0, 5]
    assert (begin[0], end[0], begin[2], end[2]) == (1, 10, 10, 15)


def test_a_run_is_the_mean_over_steps_and_ranks() -> None:
    """One step: the means of (20, 24), (20, 0), (10, 12) and (25, 29); 400 bytes."""
    found = communication(one_step())
    assert (found.transfer_ns, found.peer_wait_ns, found.hidden_ns, found.busy_ns) == (22.0, 10.0, 11.0, 27.0)
    assert found.step_bytes == 400
    assert found.ranks.to_dict("list") == {
        "rank": [0, 1],
        "host": ["a", "b"],
        "last": [0.0, 1.0],
        "slack_ns": [25.0, 0.0],
        "transfer_ns": [20.0, 24.0],
        "peer_wait_ns": [20.0, 0.0],
        "hidden_ns": [10.0, 12.0],
    }
    assert found.buckets["own_ns"].tolist() == [11.0, 16.0]


def test_bandwidths_as_nccl_tests_define_them() -> None:
    """400 bytes in 2 s; with 4 ranks the links carry 2 * 3 / 4 of it, with one nothing."""
    assert algorithm_bandwidth(400, 2.0) == 200.0
    assert bus_bandwidth(200.0, 4) == 300.0
    assert bus_bandwidth(200.0, 1) == 0.0
    assert (algorithm_bandwidth(400, 0.0), bus_bandwidth(None, 2)) == (None, None)


def test_overlap_is_the_hidden_share() -> None:
    """3 of 4; unknown where nothing travelled."""
    assert (overlap_share(3.0, 4.0), overlap_share(0.0, 0.0)) == (0.75, None)


SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))


@st.composite
def runs(draw: st.DrawFn) -> RunBuckets:
    """Ranks whose steps and buckets are anywhere within 100 ns each, in Unix time."""
    ranks, steps, buckets = draw(SHAPES)

    def sorted_pairs(count: int) -> Any:
        """Two arrays (ranks, count), the first nowhere later than the second."""
        column = st.lists(st.integers(0, 100), min_size=ranks * count, max_size=ranks * count)
        return np.sort([np.reshape(draw(column), (ranks, count)) for _ in range(2)], axis=0)

    first = START_NS + 100 * np.arange(steps)
    (begin, end), (ready, done) = sorted_pairs(steps), sorted_pairs(steps * buckets)
    step = np.repeat(np.arange(steps), buckets)
    return RunBuckets(
        hosts=tuple(f"h{rank}" for rank in range(ranks)),
        clock_error_ns=1,
        start_ns=np.tile(first, (ranks, 1)),
        begin_ns=begin + first,
        end_ns=end + first,
        step=step,
        index=np.tile(np.arange(buckets), steps),
        size_bytes=np.full(step.size, 8),
        ready_ns=ready + first[step],
        done_ns=done + first[step],
    )


@given(runs())
@settings(max_examples=200, deadline=None)
def test_parts_add_up_whatever_the_times(run: RunBuckets) -> None:
    """Transfer and peer wait are the exposed communication, no part is negative, and no bucket is counted twice."""
    found = exchange(run)
    exposed = run.end_ns - run.begin_ns
    assert (found.transfer_ns + found.peer_wait_ns == exposed).all()
    for part in (found.transfer_ns, found.peer_wait_ns, found.hidden_ns, found.slack_ns):
        assert (part >= 0).all()
    assert (found.hidden_ns <= run.begin_ns - run.start_ns).all()
    assert (found.busy_ns <= run.end_ns - run.start_ns).all()
    assert found.own_ns.sum() == found.busy_ns.sum()


@pytest.mark.dear
@given(runs(), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_the_order_of_ranks_changes_nothing(run: RunBuckets, shuffle: Any) -> None:
    """Each rank keeps its figures, the run its own."""
    order = list(range(len(run.hosts)))
    shuffle.shuffle(order)
    times = ("start_ns", "begin_ns", "end_ns", "ready_ns", "done_ns")
    moved = dataclasses.replace(
        run, hosts=tuple(run.hosts[rank] for rank in order), **{name: getattr(run, name)[order] for name in times}
    )
    ahead, back = exchange(run), exchange(moved)
    for name in vars(ahead):
        assert (getattr(ahead, name)[order] == getattr(back, name)).all()
    one, other = communication(run), communication(moved)
    assert (
        one.ranks.set_index("host")
        .drop(columns="rank")
        .sort_index()
        .equals(other.ranks.set_index("host").drop(columns="rank").sort_index())
    )
    assert one.peer_wait_ns == pytest.approx(other.peer_wait_ns)


def entry(start: tuple[int, int] | None = None, end: tuple[int, int] | None = None, host: str = "a") -> RankEnd:
    """Of a rank whose clock was measured at `start` and `end`: (ns since START_NS, offset)."""
    first, last = (at and ClockOffset(unix_ns=START_NS + at[0], offset_ns=at[1], error_ns=5) for at in (start, end))
    return RankEnd(rank=0, host=host, rows=3, crc32=0, clock=RankClock(start=first or None, end=last or None))


@pytest.mark.parametrize(
    ("start", "end", "moved"),
    [
        ((0, 100), (1000, 200), [100, 150, 230]),
        ((0, -7), None, [-7, -7, -7]),
        (None, (0, 9), [9, 9, 9]),
        (None, None, [0, 0, 0]),
        ((0, 100), (0, 100), [100, 100, 100]),
    ],
)
def test_offsets_are_interpolated(start: Any, end: Any, moved: list[int]) -> None:
    """At 0, 500 and 1300 ns: between the two measured ones and on along the same line; one stands for both, none is 0."""
    times = START_NS + np.array([0, 500, 1300])
    assert (to_rank_0(times, entry(start, end).offsets) - times).tolist() == moved


def test_the_clocks_error_is_the_largest() -> None:
    """Unknown where one rank's is."""
    assert clock_error_ns([entry((0, 0)), entry((0, 0), (1, 1))]) == 5
    assert clock_error_ns([entry((0, 0)), entry()]) is None


def tables(rank: int, behind_ns: int) -> tuple[Columns, Columns]:
    """Three steps of 100 ns of which the first is warm-up, written by a clock that is behind; rank 1 is ready 10 ns late."""
    start = START_NS + np.array([0, 100, 200]) - behind_ns
    step = {"step": np.arange(3), "flags": np.array([1, 0, 0]), "start_ns": start, "total_ns": np.full(3, 100)}
    parts = {"comm_exposed_ns": 40.0, "optimizer_ns": 5.0, "record_ns": np.nan, "other_ns": 3.0}
    bucket = {"step": np.arange(3), "index": np.zeros(3, np.int64), "bytes": np.full(3, 8)}
    bucket |= {"ready_ns": start + 50 + 10 * rank, "done_ns": start + 80}
    return step | {name: np.full(3, value) for name, value in parts.items()}, bucket


RANKS = (entry(), entry(host="b"))
"""Without clocks."""


def windows(
    steps: Iterable[Columns], ranks: Sequence[RankEnd] = RANKS, from_step: int = 0, first: Columns | None = None
) -> ExchangeWindows:
    found = ExchangeWindows(ranks, StepSpan(from_step), first)
    for columns in steps:
        found.add(columns)
    return found


def test_rows_become_times_of_rank_0() -> None:
    """Exposed communication ends before the optimizer: from 52 to 92 of each step; the warm-up is left out; rank 1's clock, a
    microsecond behind, does not matter.
    """
    steps, buckets = zip(tables(0, 0), tables(1, 1000), strict=True)
    ranks = [entry((0, 0)), entry((0, 1000), host="b")]
    run = assemble(windows(steps, ranks), buckets, ranks)
    assert (run.begin_ns - START_NS).tolist() == [[152, 252], [152, 252]]
    assert (run.end_ns - run.begin_ns).tolist() == [[40, 40], [40, 40]]
    assert exchange(run).peer_wait_ns.tolist() == [[8, 8], [0, 0]]


def test_a_found_warmup_is_left_out() -> None:
    """From step 2 on."""
    steps, buckets = zip(tables(0, 0), tables(1, 0), strict=True)
    assert assemble(windows(steps, from_step=2), buckets, RANKS).begin_ns.shape == (2, 1)


def test_only_steps_with_recorded_buckets_need_windows() -> None:
    """They are the same whether it was known beforehand which steps these are, rightly or with one too many."""
    steps, buckets = zip(tables(0, 0), tables(1, 0), strict=True)
    of_step_2 = [{name: values[2:] for name, values in columns.items()} for columns in buckets]
    for first in (None, {"step": np.array([2])}, {"step": np.array([1, 2])}):
        run = assemble(windows(steps, first=first), of_step_2, RANKS)
        assert (run.begin_ns - START_NS).tolist() == [[252], [252]]
        assert run.step.tolist() == [0]
    assert windows(steps, first={"step": np.array([2])}).numbers.tolist() == [2]


def test_a_rank_with_other_rows_has_no_windows() -> None:
    """Nor is it looked at where the first one's steps are: what its rows lack is said where they are reduced."""
    (first, _), (other, _) = tables(0, 0), tables(1, 0)
    short = {name: values[:1] for name, values in other.items()}
    assert len(windows([first, short]).ranks) == 1
