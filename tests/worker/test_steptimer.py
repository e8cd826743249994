"""The step clock, told what time it is; the rows it ends in, and the losses among them."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hpcddp.core.point import Data
from hpcddp.core.records import (
    AFTER_PAUSE,
    BUCKET_COLUMNS,
    MOST_LOSS_E9,
    STEP_COLUMNS,
    WARMUP,
    RowWriter,
    buckets_file,
    steps_file,
)
from hpcddp.worker.timing.clock import PLACINGS, EventClock, HostClock
from hpcddp.worker.timing.steplog import AT_ONCE, StepLog, first_break
from hpcddp.worker.timing.steptimer import DeviceLosses, Row, StepTimer, TimedStep
from hpcddp.worker.training.train import MORE_STEPS
from tests.worker import forked, given


class Stream:
    """A device that works through its queue while the host goes on: `now_ms` is how far it has come."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.queued_until_ms = 0.0
        self.events = 0
        self.waits = 0

    def event(self) -> Event:
        self.events += 1
        return Event(self)

    def enqueue(self, work_ms: float) -> None:
        self.queued_until_ms += work_ms


class Event:
    """As torch.cuda.Event: records the place in the queue, may be asked only once that is reached, and recorded again."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.at_ms = -1.0

    def record(self) -> None:
        self.at_ms = self._stream.queued_until_ms

    def query(self) -> bool:
        return self._stream.now_ms >= self.at_ms

    def synchronize(self) -> None:
        self._stream.waits += 1
        self._stream.now_ms = max(self._stream.now_ms, self.at_ms)

    def elapsed_time(self, later: Event) -> float:
        assert self.query(), "asked for an event that has not passed"
        assert later.query(), "asked for an event that has not passed"
        return later.at_ms - self.at_ms


def on_device() -> tuple[StepTimer, Stream]:
    stream = Stream()
    return StepTimer(EventClock(stream.event)), stream


def one_step(timer: StepTimer, stream: Stream, forward_ms: float, flags: int = 0) -> None:
    for part, work_ms in (("data_wait", 0.0), ("forward", forward_ms), ("backward", 2 * forward_ms), ("comm_exposed", 0.5)):
        stream.enqueue(work_ms)
        timer.mark(part)
    timer.close_step(flags)


def rows(steps: Iterable[TimedStep]) -> list[Row]:
    return [step.row for step in steps]


def cell(row: Row, column: str) -> int | None:
    return row[STEP_COLUMNS.index(column)]


def test_rows_come_when_the_device_is_done() -> None:
    timer, stream = on_device()
    stream.waits = 0
    one_step(timer, stream, 1.0, flags=1)
    one_step(timer, stream, 2.0)
    assert list(timer.finished()) == []
    stream.now_ms = 3.5
    (first,) = rows(timer.finished())
    assert (cell(first, "step"), cell(first, "flags")) == (0, 1)
    assert stream.waits == 0
    assert [cell(row, "step") for row in rows(timer.drain())] == [1]
    assert stream.waits == 1


def test_parts_are_the_devices_time() -> None:
    timer, stream = on_device()
    one_step(timer, stream, 1.0)
    (row,) = rows(timer.drain())
    assert (cell(row, "data_wait_ns"), cell(row, "forward_ns"), cell(row, "backward_ns")) == (0, 1_000_000, 2_000_000)
    assert (cell(row, "comm_exposed_ns"), cell(row, "other_ns"), cell(row, "total_ns")) == (500_000, 0, 3_500_000)
    assert (cell(row, "optimizer_ns"), cell(row, "h2d_hidden_ns")) == (None, None)


def test_a_part_may_come_several_times() -> None:
    timer, stream = on_device()
    for work_ms, part in ((1.0, "forward"), (2.0, "backward"), (3.0, "forward"), (4.0, "backward")):
        stream.enqueue(work_ms)
        timer.mark(part)
    timer.close_step(0)
    (row,) = rows(timer.drain())
    assert (cell(row, "forward_ns"), cell(row, "backward_ns")) == (4_000_000, 6_000_000)


def test_a_pause_within_a_step_is_of_no_step() -> None:
    timer, stream = on_device()
    stream.enqueue(1.0)
    timer.mark("forward")
    stream.enqueue(40.0)
    timer.resume()
    one_step(timer, stream, 1.0)
    (row,) = rows(timer.drain())
    assert (cell(row, "forward_ns"), cell(row, "other_ns"), cell(row, "total_ns")) == (2_000_000, 0, 4_500_000)


def test_of_a_copy_beside_the_step_before_the_rest_is_hidden() -> None:
    """5 ms of copying of which the compute stream waited for 2 leave 3; a copy that was waited for from its begin leaves none."""
    for waited_ms, hidden_ns in ((2.0, 3_000_000), (0.0, 5_000_000), (6.0, 0)):
        timer, stream = on_device()
        begin, end = timer.clock.stamp(), timer.clock.stamp()
        end.at_ms = begin.at_ms + 5.0
        stream.enqueue(waited_ms)
        timer.mark("h2d_exposed")
        timer.copied(begin, end)
        stream.enqueue(10.0)
        timer.mark("forward")
        timer.close_step(0)
        (row,) = rows(timer.drain())
        assert cell(row, "h2d_hidden_ns") == hidden_ns
        assert cell(row, "total_ns") == round((waited_ms + 10.0) * 1e6)


def test_steps_follow_each_other_without_a_gap() -> None:
    timer, stream = on_device()
    one_step(timer, stream, 1.0)
    stream.enqueue(7.0)
    one_step(timer, stream, 1.0)
    first, second = rows(timer.drain())
    assert cell(second, "data_wait_ns") == 7_000_000
    assert (cell(second, "start_ns") or 0) - (cell(first, "start_ns") or 0) == 3_500_000


def test_a_restart_leaves_out_what_was_done_meanwhile() -> None:
    """A device 1000 ms ahead of the host's clock: pauses last as long as it says, and clocks are compared by its time."""
    timer, stream = on_device()
    one_step(timer, stream, 1.0)
    found = rows(timer.drain())
    stream.enqueue(1000.0)
    timer.restart()
    one_step(timer, stream, 1.0)
    found += rows(timer.drain())
    assert [(cell(row, "step"), cell(row, "total_ns")) for row in found] == [(0, 3_500_000), (1, 3_500_000)]
    begun_ns = [cell(row, "start_ns") or 0 for row in found]
    assert begun_ns[1] - begun_ns[0] == 1_003_500_000
    ahead_ns = timer.unix_now()() - timer.clock.unix_now_ns()
    assert 900_000_000 < ahead_ns < 1_007_000_000


def test_on_the_host_both_clocks_are_one() -> None:
    """The clock that offsets between ranks are measured by is the steps' own, to the nanosecond."""
    clock = HostClock()
    timer = StepTimer(clock)
    timer.close_step(0)
    list(timer.drain())
    timer.restart()
    before, now, after = clock.unix_now_ns(), timer.unix_now()(), clock.unix_now_ns()
    assert before <= now <= after


def test_events_are_used_again() -> None:
    timer, stream = on_device()
    for _ in range(100):
        one_step(timer, stream, 1.0)
        stream.now_ms = stream.queued_until_ms
        assert len(list(timer.finished())) == 1
    assert stream.events <= PLACINGS + 7


def test_the_hosts_clock_is_unix_time_at_a_steady_pace() -> None:
    timer = StepTimer(HostClock())
    timer.mark("data_wait")
    timer.mark("forward")
    timer.close_step(0)
    (row,) = rows(timer.finished())
    assert sum(cell(row, f"{part}_ns") or 0 for part in ("data_wait", "forward", "other")) == cell(row, "total_ns")
    assert (cell(row, "start_ns") or 0) > 1_700_000_000 * 10**9


def test_buckets_are_told_in_the_order_they_were_done() -> None:
    """gloo runs two at a time: the second to begin may be the first to end."""
    timer = StepTimer(HostClock())
    timer.restart()
    first, second = (timer.bucket(index, 8, timer.clock.stamp()) for index in range(2))
    second.done = timer.clock.stamp()
    first.done = timer.clock.stamp()
    timer.close_step(0)
    (step,) = timer.drain()
    assert [bucket[1] for bucket in step.buckets] == [1, 0]


def step(log: StepLog, buckets: int = 0) -> None:
    stamp = log.timer.clock.stamp
    log.timer.mark("forward")
    for index in range(buckets):
        bucket = log.timer.bucket(index, 4 << 20, stamp())
        bucket.done = stamp()
    log.timer.close_step(0)
    log.write_finished()


def lines(file: Path) -> list[list[str]]:
    return [line.split(",") for line in file.read_text().splitlines()]


def test_every_step_and_bucket_is_in_the_files(tmp_path: Path) -> None:
    with StepLog(StepTimer(HostClock()), tmp_path, 3, buckets=True) as log:
        for _ in range(2 * AT_ONCE + 5):
            step(log, buckets=2)
    steps, buckets = lines(steps_file(tmp_path, 3)), lines(buckets_file(tmp_path, 3))
    assert steps[0] == list(STEP_COLUMNS)
    assert [row[0] for row in steps[1:]] == [str(number) for number in range(2 * AT_ONCE + 5)]
    assert buckets[0] == list(BUCKET_COLUMNS)
    assert [row[:2] for row in buckets[1:5]] == [["0", "0"], ["0", "1"], ["1", "0"], ["1", "1"]]
    assert {row[2] for row in buckets[1:]} == {"4194304"}
    assert log.counts() == {
        "rows": len(steps) - 1,
        "crc32": zlib.crc32(steps_file(tmp_path, 3).read_bytes()),
        "bucket_rows": len(buckets) - 1,
        "bucket_crc32": zlib.crc32(buckets_file(tmp_path, 3).read_bytes()),
    }
    for number, bucket in enumerate(buckets[1:]):
        row = steps[1 + number // 2]
        start, total, ready, done = int(row[2]), int(row[STEP_COLUMNS.index("total_ns")]), int(bucket[3]), int(bucket[4])
        assert start <= ready <= done <= start + total


def test_short_steps_are_written_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("hpcddp.worker.timing.steplog.time.monotonic", lambda: now_s)
    with StepLog(StepTimer(HostClock()), tmp_path, 0, buckets=False) as log:
        step(log)
        assert log.counts()["rows"] == 1
        for _ in range(AT_ONCE - 1):
            step(log)
        assert log.counts()["rows"] == 1
        step(log)
        assert log.counts()["rows"] == 1 + AT_ONCE
        step(log)
        now_s += 0.5
        step(log)
        assert log.counts()["rows"] == 3 + AT_ONCE


def test_a_pause_leaves_nothing_unwritten(tmp_path: Path) -> None:
    """Without a hook there is no file of buckets, which would look like a run whose ranks exchanged nothing."""
    with StepLog(StepTimer(HostClock()), tmp_path, 0, buckets=False) as log:
        for _ in range(5):
            step(log)
        log.pause()
        assert log.counts()["rows"] == 5
        assert len(lines(steps_file(tmp_path, 0))) >= 1
    assert (buckets_file(tmp_path, 0).exists(), set(log.counts())) == (False, {"rows", "crc32"})


RowFacts = tuple[int, int, int, int]
"""step, flags, start, total"""


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([(0, 0, 0, 5), (1, 0, 5, 5), (2, 0, 10, 5)], None),
        ([(0, 0, 0, 5), (1, 0, 2_000_005, 5)], "step 1 begins 2.000 ms after the end of step 0"),
        ([(0, 0, 0, 5), (1, AFTER_PAUSE, 2_000_005, 5)], None),
        ([(0, WARMUP, 0, 5), (1, 0, 99, 5)], None),
        ([(0, WARMUP, 0, 5), (0, WARMUP, 9, 5), (1, WARMUP, 20, 5)], None),
        ([(0, 0, 0, 5), (0, AFTER_PAUSE, 5, 5)], "step 0 is followed by step 0"),
        ([(0, 0, 0, 5), (2, 0, 5, 5)], "step 0 is followed by step 2"),
        ([(0, 0, 0, 5), (1, WARMUP, 5, 5)], "step 0 is followed by step 1, a warm-up step"),
        ([], None),
    ],
)
def test_the_first_break_is_told(tmp_path: Path, rows: list[RowFacts], says: str | None) -> None:
    with RowWriter(steps_file(tmp_path, 0), STEP_COLUMNS) as out:
        for step, flags, start, total in rows:
            known = {"step": step, "flags": flags, "start_ns": start, "total_ns": total}
            out.row([known.get(column) for column in STEP_COLUMNS])
    assert first_break(tmp_path, 0) == says


LOSS = STEP_COLUMNS.index("loss_e9")


def layers(classes: int) -> nn.Module:
    """Neither dropout nor BatchNorm: what a rank computes of a sample does not depend on its others."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.Tanh(), nn.Linear(16, classes))


def losses(study: Path, ranks: int, **changes: Any) -> list[float]:
    what = given.point(
        ranks,
        model="tests.worker.test_steptimer:layers",
        data=Data(name="tests.worker.test_evaluate:tiny"),
        batch_per_gpu=16 // ranks,
        precision="fp64",
        steps=10,
        **changes,
    )
    found = forked.ran(study, what)
    assert found.read("launch.json")["step_rows"] == 3
    by_rank = [[int(row["loss_e9"]) / 1e9 for row in found.rows(rank)] for rank in range(ranks)]
    return [sum(step) / ranks for step in zip(*by_rank, strict=True)]


@pytest.mark.dear
def test_global_batches_do_not_depend_on_the_number_of_ranks(tmp_path: Path) -> None:
    single = losses(tmp_path / "1", 1)
    assert len(single) == 12
    assert max(single) - min(single) > 0.1
    assert losses(tmp_path / "4", 4) == pytest.approx(single, abs=2e-9)
    assert losses(tmp_path / "parts", 2, accumulate=2) == pytest.approx(single, abs=2e-9)


@pytest.mark.parametrize(
    ("loss", "cell"),
    [(2.3025850929, 2302585093), (0.0, 0), (None, None), (math.nan, None), (math.inf, None), (1e30, MOST_LOSS_E9), (1e308, None)],
)
def test_a_loss_is_an_integer_in_the_rows(loss: float | None, cell: int | None) -> None:
    timer = StepTimer(HostClock())
    timer.mark("forward")
    if loss is not None:
        timer.loss(torch.tensor(loss, dtype=torch.float64))
    timer.close_step(0)
    (step,) = timer.drain()
    assert step.row[LOSS] == cell


def test_a_loss_on_a_device_is_read_with_its_step() -> None:
    stream, reader = Stream(), DeviceLosses(pinned=False)
    timer = StepTimer(EventClock(stream.event), losses=reader)
    stream.waits = 0
    for number in range(3 * DeviceLosses.POOL_SIZE):
        stream.enqueue(1.0)
        timer.mark("forward")
        timer.loss(torch.tensor(float(number)))
        timer.close_step(0)
        assert list(timer.finished()) == []
        stream.now_ms += 1.0
        (step,) = timer.finished()
        assert step.row[LOSS] == number * 10**9
    assert stream.waits == 0
    assert len(reader._free) == DeviceLosses.POOL_SIZE


def test_what_a_log_knows_of_losses(tmp_path: Path) -> None:
    with StepLog(StepTimer(HostClock(), first_step=7), tmp_path, 0, buckets=False) as log:
        for loss in (1.5, math.inf, math.nan, 2.5):
            log.timer.loss(torch.tensor(loss))
            log.timer.close_step(0)
        log.pause()
    assert (log.loss_first, log.loss_last, log.not_finite) == (1.5, 2.5, (8, math.inf))


BAD_STEP = 20


def diverges_on_rank_1(classes: int) -> nn.Module:
    """Its scores are no numbers in one step, and its gradients spread."""
    model, calls = layers(classes), [0]

    def spoil(module: nn.Module, _: Any, scores: torch.Tensor) -> torch.Tensor | None:
        if not module.training:
            return None
        calls[0] += 1
        return scores * math.nan if forked.this_rank() == 1 and calls[0] == BAD_STEP + 1 else None

    model.register_forward_hook(spoil)
    return model


@pytest.mark.dear
@pytest.mark.parametrize("steps", [500, BAD_STEP - 1])
def test_the_run_ends_where_a_loss_is_no_number(tmp_path: Path, steps: int) -> None:
    what = given.point(3, model="tests.worker.test_steptimer:diverges_on_rank_1", steps=steps)
    found = forked.ran(tmp_path, what, may_fail=True)
    assert (found.codes, found.end["state"]) == ([1, 1, 1], "failed")
    assert (found.end["fault"]["kind"], found.end["fault"]["rank"]) == ("diverged", 1)
    assert found.end["reason"].startswith(f"rank 1 on node0: the loss of step {BAD_STEP} is nan")
    assert "training diverged. Lower workload.optimizer.lr" in found.end["reason"]
    cells = [row["loss_e9"] for row in found.rows(1)]
    assert "" not in cells[:BAD_STEP]
    assert cells[BAD_STEP] == ""
    assert len(cells) <= BAD_STEP + 2 * AT_ONCE + MORE_STEPS
