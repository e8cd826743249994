"""Transfer, peer wait and what is hidden, by hand."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcddp.analysis import StudyResult, analyze
from hpcddp.analysis.records.buckets import (
    ExchangeWindows,
    RunBuckets,
    assemble,
    clock_error_ns,
    clocks_known,
    moved_ns,
    to_rank_0,
)
from hpcddp.analysis.records.rows import Columns
from hpcddp.analysis.records.steps import StepSpan
from hpcddp.analysis.runs.communication import (
    algorithm_bandwidth,
    bus_bandwidth,
    communication,
    exchange_times,
    newly_covered,
    overlap_share,
)
from hpcddp.analysis.study.load import load_study
from hpcddp.core.attempt_records import ClockOffset, RankClock, RankEnd
from hpcddp.core.point import Point
from hpcddp.core.records import buckets_file, write_json
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import MS, START_NS, Bucket, Recorded, point, write_run, write_study

pytestmark = pytest.mark.usefixtures("undrawn")


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
    """Of its 40 exposed, rank 0 waits 20 for rank 1, which waits for nobody; the rest is transfer."""
    found = exchange_times(one_step())
    assert found.peer_wait_ns.tolist() == [[20], [0]]
    assert found.transfer_ns.tolist() == [[20], [24]]
    assert found.hidden_ns.tolist() == [[10], [12]]
    assert found.busy_ns.tolist() == [[25], [29]]
    assert found.slack_ns.tolist() == [[30, 20], [0, 0]]


def test_two_all_reduces_at_a_time_are_counted_once() -> None:
    """gloo: the second travels from 55 to 70, the first from 50 to 90: 40 in all, not 55."""
    run = one_step(ready_ns=array([20, 30], [50, 55]), done_ns=array([90, 70], [90, 70]), begin_ns=array([50], [50]))
    found = exchange_times(run)
    assert found.busy_ns.tolist() == [[40], [40]]
    assert found.own_ns.tolist() == [[40, 0], [40, 0]]


def test_buckets_in_order_have_times_of_their_own() -> None:
    """NCCL: the second is ready at 55, but travels when the first is done."""
    run = one_step(ready_ns=array([20, 30], [50, 55]), done_ns=array([70, 95], [70, 95]))
    assert exchange_times(run).own_ns.tolist() == [[20, 25], [20, 25]]


def test_clocks_that_err_make_no_negative_times() -> None:
    """Rank 0's bucket seems to be done before rank 1 was ready: it took no time there."""
    found = exchange_times(one_step(ready_ns=array([20, 60], [61, 99])))
    assert found.busy_ns.tolist() == [[0], [1]]
    assert found.peer_wait_ns.tolist() == [[35], [0]]


def test_a_step_without_buckets_waits_for_nobody() -> None:
    """What is exposed there is transfer: the end of backward()."""
    run = one_step(start_ns=array([0, 110], [0, 110]), begin_ns=array([60, 150], [80, 151]), end_ns=array([100, 153], [104, 152]))
    found = exchange_times(run)
    assert found.transfer_ns.tolist() == [[20, 3], [24, 1]]
    assert found.busy_ns.tolist() == [[25, 0], [29, 0]]


def test_the_union_within_windows() -> None:
    """0-10, 2-5 and 8-20 cut to 1-15 cover 9, nothing new, 5."""
    cut = np.full(3, 1), np.full(3, 15)
    begin, end = newly_covered(np.array([0, 2, 8]), np.array([10, 5, 20]), *cut)
    assert np.maximum(end - begin, 0).tolist() == [9, 0, 5]
    assert (begin[0], end[0], begin[2], end[2]) == (1, 10, 10, 15)


def test_a_run_is_the_mean_over_steps_and_ranks() -> None:
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
    """400 bytes in 2 s; with 4 ranks the links carry 2 * 3 / 4 of it, with one nothing. Overlap is the hidden share."""
    assert algorithm_bandwidth(400, 2.0) == 200.0
    assert bus_bandwidth(200.0, 4) == 300.0
    assert bus_bandwidth(200.0, 1) == 0.0
    assert (algorithm_bandwidth(400, 0.0), bus_bandwidth(None, 2)) == (None, None)
    assert (overlap_share(3.0, 4.0), overlap_share(0.0, 0.0)) == (0.75, None)


SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))


@st.composite
def any_runs(draw: st.DrawFn) -> RunBuckets:
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


@given(any_runs())
@settings(max_examples=200, deadline=None)
def test_parts_add_up_whatever_the_times(run: RunBuckets) -> None:
    found = exchange_times(run)
    exposed = run.end_ns - run.begin_ns
    assert (found.transfer_ns + found.peer_wait_ns == exposed).all()
    for part in (found.transfer_ns, found.peer_wait_ns, found.hidden_ns, found.slack_ns):
        assert (part >= 0).all()
    assert (found.hidden_ns <= run.begin_ns - run.start_ns).all()
    assert (found.busy_ns <= run.end_ns - run.start_ns).all()
    assert found.own_ns.sum() == found.busy_ns.sum()


@pytest.mark.dear
@given(any_runs(), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_the_order_of_ranks_changes_nothing(run: RunBuckets, shuffle: Any) -> None:
    order = list(range(len(run.hosts)))
    shuffle.shuffle(order)
    times = ("start_ns", "begin_ns", "end_ns", "ready_ns", "done_ns")
    hosts = tuple(run.hosts[rank] for rank in order)
    moved = dataclasses.replace(run, hosts=hosts, **{name: getattr(run, name)[order] for name in times})
    ahead, back = exchange_times(run), exchange_times(moved)
    for name in vars(ahead):
        assert (getattr(ahead, name)[order] == getattr(back, name)).all()
    one, other = communication(run), communication(moved)
    by_host = [each.ranks.set_index("host").drop(columns="rank").sort_index() for each in (one, other)]
    assert by_host[0].equals(by_host[1])
    assert one.peer_wait_ns == pytest.approx(other.peer_wait_ns)


def entry(start: tuple[int, int] | None = None, end: tuple[int, int] | None = None, host: str = "a", error: int = 5) -> RankEnd:
    """Of a rank whose clock was measured at `start` and `end`: (ns since START_NS, offset)."""
    first, last = (at and ClockOffset(unix_ns=START_NS + at[0], offset_ns=at[1], error_ns=error) for at in (start, end))
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


@pytest.mark.parametrize(("moved", "known"), [(19_000_000, True), (-19_000_000, True), (21_000_000, False), (-21_000_000, False)])
def test_200_millionths_are_what_clocks_do(moved: int, known: bool) -> None:
    """20 ms in 100 s, to either side; and what their offsets are uncertain by."""
    still, other = (entry((0, 5_000_000), (100_000 * MS, 5_000_000 + by), error=1000) for by in (0, moved))
    assert clocks_known([still, other]) == known
    assert clock_error_ns([still, other]) == (1000 if known else None)
    assert moved_ns(other) == (0 if known else abs(moved))
    short = entry((0, 0), (1000 * MS, 1_900_000), error=1_000_000)
    assert clocks_known([still, short])
    assert not clocks_known([still, entry()])
    assert clocks_known([entry()])


def test_the_clocks_error_is_the_largest() -> None:
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
    """Exposed communication ends before the optimizer: from 52 to 92 of each step, whatever rank 1's clock; the warm-up aside."""
    steps, buckets = zip(tables(0, 0), tables(1, 1000), strict=True)
    ranks = [entry((0, 0)), entry((0, 1000), host="b")]
    run = assemble(windows(steps, ranks), buckets, ranks)
    assert (run.begin_ns - START_NS).tolist() == [[152, 252], [152, 252]]
    assert (run.end_ns - run.begin_ns).tolist() == [[40, 40], [40, 40]]
    assert exchange_times(run).peer_wait_ns.tolist() == [[8, 8], [0, 0]]
    assert assemble(windows(steps, ranks, from_step=2), buckets, ranks).begin_ns.shape == (2, 1)


def test_only_steps_with_recorded_buckets_need_windows() -> None:
    steps, buckets = zip(tables(0, 0), tables(1, 0), strict=True)
    of_step_2 = [{name: values[2:] for name, values in columns.items()} for columns in buckets]
    for first in (None, {"step": np.array([2])}, {"step": np.array([1, 2])}):
        run = assemble(windows(steps, first=first), of_step_2, RANKS)
        assert (run.begin_ns - START_NS).tolist() == [[252], [252]]
        assert run.step.tolist() == [0]
    assert windows(steps, first={"step": np.array([2])}).numbers.tolist() == [2]


def test_a_rank_with_other_rows_has_no_windows() -> None:
    (first, _), (other, _) = tables(0, 0), tables(1, 0)
    short = {name: values[:1] for name, values in other.items()}
    assert len(windows([first, short]).ranks) == 1


SHARES = {"forward": 0.3, "backward": 0.2, "comm_exposed": 0.4, "optimizer": 0.1, "h2d_hidden": 0.05}
"""Of a step of 100 ms: communication is exposed from 50 to 90."""


def late(rank: int) -> Bucket:
    """Ready at 40 ms; rank 1's at 60. All-reduced at 85."""
    return Bucket(size_bytes=25_000_000, ready_ns=(60 if rank == 1 else 40) * MS, done_ns=85 * MS)


WHAT = point(1, 2, comm="on")


def hooked(**changes: Any) -> Recorded:
    return Recorded(**{"step_ns": 100 * MS, "shares": SHARES, "buckets": [late], **changes})


def written(folder: Path, recorded: Recorded, what: Point = WHAT) -> tuple[Study, Path]:
    """A study of one run, and its attempt."""
    study = write_study(folder / "s", [what])
    return study, write_run(study, what, recorded)


def measured(folder: Path, runs: Mapping[Point, Recorded | int]) -> StudyResult:
    """Of a study with a run of each point, or one whose steps take so many ms."""
    study = write_study(folder / "s", list(runs))
    for each, recorded in runs.items():
        write_run(study, each, Recorded(step_ns=recorded * MS) if isinstance(recorded, int) else recorded)
    return one(folder)


def one(root: Path) -> StudyResult:
    (result,) = analyze(root)
    return result


def test_points_with_and_without_the_hook_are_one_row(tmp_path: Path) -> None:
    plain = point(1, 2)
    result = measured(tmp_path, {point(1, 1): 80, plain: 96, WHAT: hooked(clocks={1: 7 * MS})})
    scaling, breakdown, buckets, stragglers = (
        pd.read_csv(tmp_path / f"s/report/{name}.csv") for name in ("scaling", "breakdown", "buckets", "stragglers")
    )
    row = scaling.iloc[1]
    assert (row["label"], row["n"], row["hook"]) == (plain.label, 1, False)
    assert (row["step_s"], row["step_hook_s"]) == (0.096, 0.1)
    assert row["speedup_1gpu"] == pytest.approx(2 * 80 / 96)
    parts = breakdown.iloc[1]
    assert (parts["breakdown_label"], parts["breakdown_n"], parts["forward_s"]) == (WHAT.label, 1, 0.03)
    assert pd.isna(parts["unaccounted_s"])
    assert (parts["transfer_s"], parts["peer_wait_s"], parts["comm_hidden_s"]) == (0.035, 0.005, 0.0)
    assert (parts["comm_exposed_s"], parts["h2d_hidden_s"], parts["comm_overlap"]) == (0.04, 0.005, 0.0)
    assert (parts["step_bytes"], parts["algbw_bytes_per_s"], parts["busbw_bytes_per_s"]) == (25e6, 1e9, 1e9)
    assert breakdown.iloc[0][["transfer_s", "peer_wait_s", "step_hook_s"]].isna().all()
    (bucket,) = buckets.to_dict("records")
    assert (bucket["bucket"], bucket["bytes"], bucket["slack_s"], bucket["own_s"]) == (0, 25_000_000, 0.02, 0.025)
    ranks = stragglers[["rank", "host", "last", "slack_s", "peer_wait_s"]].to_numpy().tolist()
    assert ranks == [[0, "r000", 0.0, 0.02, 0.01], [1, "r001", 1.0, 0.0, 0.0]]
    (found,) = [verdict for verdict in result.plain["verdicts"] if verdict["name"] == "straggler"]
    assert (found["where"], found["runs"]) == ("on rank 1 on r001", [f"r1 of {WHAT.label}"])
    assert found["evidence"] == (
        f"Rank 1 on r001 was the last to be ready at 100 % of the all-reduces of r1 of {WHAT.label}. The other ranks waited "
        f"10.0 ms per step for it (10 % of the step). Without this wait, a step would be up to 11 % faster."
    )
    assert "96.0      100" in result.text
    assert "overlapped ms  exchange ms  sync wait ms  overlap  alg GB/s  bus GB/s\n         1 x 2     25.0" in result.text
    assert max(len(line) for line in result.text.splitlines() if not line.startswith("report:")) <= 105


def test_steps_without_bucket_rows_say_nothing_of_the_exchange(tmp_path: Path) -> None:
    """Recorded of two timed steps out of five: the figures are theirs, not those of five of which three exchanged nothing."""
    studies = [written(tmp_path / str(steps), hooked(bucket_steps=steps))[0] for steps in (None, (2, 5))]
    every, some = (load_study(study).runs[0].exchange for study in studies)
    assert every is not None
    assert some is not None
    assert (some.step_bytes, some.peer_wait_ns, some.busy_ns) == (25_000_000, 5 * MS, 25 * MS)
    assert (some.transfer_ns, some.hidden_ns) == (every.transfer_ns, every.hidden_ns)


def test_on_gloo_a_bucket_has_no_time_of_its_own(tmp_path: Path) -> None:
    """Two travel at a time."""
    written(tmp_path, hooked(gpu=None), point(1, 2, comm="on", device="cpu"))
    one(tmp_path)
    buckets = pd.read_csv(tmp_path / "s/report/buckets.csv")
    assert buckets[["own_s", "algbw_bytes_per_s", "busbw_bytes_per_s"]].isna().all(axis=None)


def test_without_a_run_without_the_hook_its_throughput_is_shown(tmp_path: Path) -> None:
    """And a note says so; another one where clocks are known worse than 2 % of the step."""
    _, attempt = written(tmp_path, hooked())
    end = json.loads((attempt / "end.json").read_text())
    end["ranks"][1]["clock"]["end"]["error_ns"] = 3 * MS
    write_json(attempt / "end.json", end)
    plain = one(tmp_path).plain
    assert plain["points"][0]["samples_per_s"] == 640.0
    about = "Throughput of every row comes from runs with the communication hook. Add runs without it with `measure.comm: off`."
    assert about in plain["notes"]
    assert any(note.startswith("The ranks' clocks are known to 3.00 ms only in 1 of 1 runs") for note in plain["notes"])


def test_steps_with_the_hook_that_are_unlike_those_without_are_noted(tmp_path: Path) -> None:
    wanted = f"The step of {WHAT.label} lasts 100 ms with the communication hook and 90.0 ms without."
    assert any(note.startswith(wanted) for note in measured(tmp_path, {point(1, 2): 90, WHAT: hooked()}).plain["notes"])


@pytest.mark.dear
@pytest.mark.usefixtures("drawn")
def test_where_clocks_are_not_known_transfer_and_waiting_are_not_either(tmp_path: Path) -> None:
    """Nor what is hidden, bandwidth, and who is waited for. What is exposed in all, bytes and their number are."""
    _, attempt = written(tmp_path, hooked())
    end = json.loads((attempt / "end.json").read_text())
    end["ranks"][1]["clock"] = {"start": None, "end": None}
    write_json(attempt / "end.json", end)
    result = one(tmp_path)
    (row,) = result.plain["points"]
    unknown = [f"{name}_mean_s" for name in ("transfer", "peer_wait", "comm_hidden", "comm_busy")]
    assert [row[name] for name in (*unknown, "comm_overlap", "busbw_bytes_per_s")] == [None] * 6
    assert min(row["comm_exposed_mean_s"], row["step_bytes"]) > 0
    assert any("clock offsets between ranks are not known: transfer, waiting" in note for note in result.plain["notes"])
    buckets = pd.read_csv(tmp_path / "s/report/buckets.csv")
    assert buckets["bytes"].notna().all()
    assert buckets["slack_s"].isna().all()
    assert not (tmp_path / "s/report/stragglers.csv").exists()
    assert re.search(r"1 x 2 +25\.0( +-){6}", result.text)


@pytest.mark.parametrize("closes", [True, False])
def test_what_the_cross_check_found_is_said(tmp_path: Path, closes: bool) -> None:
    checked = point(1, 2, comm="check")
    sentence = "the views agree" if closes else "the views of the exchange do not agree: do not rely on this run's breakdown"
    written(tmp_path, hooked(end={"comm_check": {"closes": closes, "sentence": sentence}}), checked)
    said = [note for note in one(tmp_path).plain["notes"] if "agree on communication" in note or "views" in note]
    agree = "Step clock, difference and profiler agree on communication in 1 of 1 runs."
    assert said == [agree if closes else f"Run r1 of {checked.label}: {sentence}."]


def test_bucket_rows_that_are_damaged_or_of_another_model_reject(tmp_path: Path) -> None:
    study, attempt = written(tmp_path, hooked())
    file = buckets_file(attempt, 1)
    file.write_bytes(file.read_bytes().replace(b"25000000", b"25000001", 1))
    (run,) = load_study(study).runs
    assert run.reason == f"rank 1: {WHAT.label}/r1/100.0/ranks/00001.buckets.csv does not match its checksum in end.json"
    write_run(study, WHAT, hooked(job="101", buckets=[lambda rank: Bucket(size_bytes=8 + rank, ready_ns=1, done_ns=2)]))
    (run,) = load_study(study).runs
    assert run.reason == "rank 1 exchanged other buckets than rank 0 (6 and 6 rows)"


def test_profiled_and_evaluated_runs_are_pooled_with_others(tmp_path: Path) -> None:
    points = [point(1, 1), point(1, 1, profile_steps=5)]
    (row,) = measured(tmp_path, dict.fromkeys(points, 1)).plain["points"]
    assert (row["n"], row["label"]) == (2, " + ".join(sorted(each.label for each in points)))


def test_limits_stand_beside_full_training(tmp_path: Path) -> None:
    points = {point(1, 1): 64, point(1, 1, input="synthetic"): 32, point(1, 1, input="io"): 16, point(1, 2): 64}
    result = measured(tmp_path, points)
    (limits,) = result.plain["limits"]
    assert limits == {
        **{"series": "", "nodes": 1, "gpus_per_node": 1, "device": "cuda"},
        **{"full": 500.0, "synthetic": 1000.0, "io": 2000.0},
    }
    table = "  nodes x GPUs  full  synthetic data  loader only\n         1 x 1   500           1,000        2,000"
    assert table in result.text
    assert result.text.count("1 x 1") == 2
    assert len(pd.read_csv(tmp_path / "s/report/scaling.csv")) == 4
    assert result.plain["sentences"][0].startswith("2 GPUs train about 2.0 times as fast as one GPU (100 % efficiency).")
    result = measured(tmp_path / "one", {point(1, 2, input="io"): 1})
    assert result.plain["limits"] == []
    assert result.plain["sentences"][0].startswith("2 GPUs load about 64,000 samples/s.")


def test_scaling_counts_gpus_not_processes(tmp_path: Path) -> None:
    steps_ms = {"ddp": 50, "data_parallel": 100}
    points = {point(1, gpus, parallel=name): gpus * ms for name, ms in steps_ms.items() for gpus in (1, 4)}
    rows = {(row["series"], row["gpus"]): row for row in measured(tmp_path, points).plain["points"]}
    one_process = rows["parallel data_parallel", 4]
    assert (one_process["ranks"], one_process["efficiency_1gpu"], rows["parallel ddp", 4]["ranks"]) == (1, 0.25, 4)


def test_what_a_run_says_of_its_protocol_is_kept(tmp_path: Path) -> None:
    protocol = {"stopped_by": "interval", "warmup_detected_steps": 3, "steady_from_step": 4}
    recorded = Recorded(step_ns=lambda rank, step: (9 if step < 4 else 8) * MS, protocol=protocol)
    written(tmp_path, recorded, point(1, 1))
    one(tmp_path)
    (row,) = pd.read_csv(tmp_path / "s/report/runs.csv").to_dict("records")
    assert (row["stopped_by"], row["warmup_detected_steps"], row["steady_steps"], row["step_s"]) == ("interval", 3, 2, 0.008)


@pytest.mark.dear
def test_a_rank_alone_waits_for_nobody(tmp_path: Path) -> None:
    single, pair = point(1, 1, comm="on"), point(1, 2, comm="on")
    study = write_study(tmp_path / "s", [single, pair])
    write_run(study, single, hooked())
    result = one(tmp_path)
    assert "straggler" not in result.text
    assert "Gradient all-reduce" not in result.text
    write_run(study, pair, hooked())
    _, _, table = one(tmp_path).text.partition("Gradient all-reduce")
    assert ("1 x 2" in table, "1 x 1" in table) == (True, False)


@pytest.mark.dear
def test_what_tells_series_apart_is_above_them_where_tables_get_too_wide(tmp_path: Path) -> None:
    more = ({"model": "my_package.models:build"}, {"precision": "bf16"}, {"loader_workers_per_rank": 16})
    workloads: list[dict[str, Any]] = [{}, *more]
    recorded: dict[str, Recorded | int] = {"off": 100, "on": hooked()}
    points = {point(n, 1, comm=comm, **each): recorded[comm] for each in workloads for n in (1, 16) for comm in recorded}
    tables = measured(tmp_path, points).text.partition("checks ")[2].splitlines()
    assert max(map(len, (line for line in tables if not line.startswith("report")))) <= 105
    (head,) = (i for i, line in enumerate(tables) if "hook ms" in line)
    assert [line.split()[0] for line in tables[head + 1 : head + 13]] == 4 * ["workers", "1", "16"]
    assert tables[head + 1].split() == ["workers", "2,", "model", "my_package.models:build,", "precision", "fp32"]
