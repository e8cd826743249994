"""Measured points as the model takes them: rate, waiting and buckets of each run, by its records and the csv module alone.

A login node's `plan` cannot wait for the analysis' pandas. Rates are the analysis' own to the last digit: samples of the steady
steps over the mean over ranks of what these took (tests/predict/test_expected.py).
"""

from __future__ import annotations

import contextlib
import csv
import statistics
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hpcddp.core.attempt_records import RankEnd, TrainingEnd
from hpcddp.core.comm_record import CommRecord, LinkFit
from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.errors import HpcddpError
from hpcddp.core.launch_record import LaunchRecord
from hpcddp.core.own_script import completed
from hpcddp.core.point import Point
from hpcddp.core.records import AFTER_PAUSE, SCHEMA, buckets_file, steps_file
from hpcddp.core.run_root import Study
from hpcddp.core.start_up import start_up
from hpcddp.predict.model import Bucket
from hpcddp.study.study_records import RecordedEnd, read_end, read_record

AHEAD = ("data_wait", "h2d_exposed", "forward")
AFTER = ("optimizer", "record", "other")
"""Parts of a step before backward, and behind the exchange."""


@dataclass(frozen=True, kw_only=True)
class MeasuredRun:
    """A run whose numbers count."""

    run: int
    point: Point
    """With what its job found out of a script."""
    kind: tuple[str, ...]
    """Environment and GPUs: runs of different kinds are not pooled."""
    ended_unix_ns: int
    samples_per_s: float
    waits: float
    ahead: float
    """Shares of the step: waiting for data, and all that comes before backward."""
    start_up_s: float | None
    """From srun to the first step."""
    buckets: tuple[Bucket, ...] = ()
    """With `comm: on`."""


def read_run(study: Study, point: Point, run: int) -> MeasuredRun | str | None:
    """By its last attempt that is done; a sentence where it does not count, None where there is none."""
    if (done := _done(study, point, run)) is None:
        return None
    attempt, end = done
    failed = next((gate for gate in end.gates if not gate.passed), None)
    if failed is not None or not end.gates:
        return f"check `{failed.name}`: {failed.evidence}" if failed else "end.json has no check"
    try:
        return _read(attempt, point, run)
    except (OSError, ValueError, IndexError, ArithmeticError, csv.Error, HpcddpError) as error:
        return f"its records cannot be used: {error}"


def _done(study: Study, point: Point, run: int) -> tuple[Path, RecordedEnd] | None:
    """The last attempt that is done."""
    ends = ((attempt, read_end(attempt)) for attempt in reversed(study.attempts(point.label, run)))
    return next(((attempt, end) for attempt, end in ends if end and end.state == "done"), None)


def _read(attempt: Path, point: Point, run: int) -> MeasuredRun:
    end, launch = read_record(TrainingEnd, attempt / "end.json"), read_record(LaunchRecord, attempt / "launch.json")
    if end is None or launch is None or len(end.ranks) != launch.ranks:
        raise ValueError("launch.json or a rank is missing")
    if any(each.attempt != attempt.name for each in end.history):
        raise ValueError("several attempts made its steps")
    point_id, point = point.id, completed(point, launch.script) if launch.script else point
    gates = {gate.name for gate in end.gates}
    if (launch.schema, launch.point, end.global_batch) != (SCHEMA, point_id, point.global_batch) or not gates.issuperset(
        launch.gates
    ):
        raise ValueError("its records are of another point or version")
    counted, steps = _counted(point, end, launch.data.samples), dict[int, _Step]()
    ranks = [_sums(attempt, rank, counted, steps if index == 0 else {}) for index, rank in enumerate(end.ranks)]
    if not steps:
        raise ValueError("it has no timed step")
    total_ns, by_rows = sum(rank.total_ns for rank in ranks), [rank.samples for rank in ranks]
    samples = sum(by_rows) if all(by_rows) else len(steps) * end.global_batch
    started = start_up(attempt, launch)
    return MeasuredRun(
        run=run,
        point=point,
        kind=(launch.env_id, *sorted(launch.gpus)),
        ended_unix_ns=end.ended_unix_ns or 0,
        samples_per_s=samples * 1e9 * len(ranks) / total_ns,
        waits=sum(rank.waits_ns for rank in ranks) / total_ns,
        ahead=sum(rank.ahead_ns for rank in ranks) / total_ns,
        start_up_s=started.until_first_step_s if started else None,
        buckets=_buckets(attempt, end.ranks[0], steps) if end.ranks[0].bucket_rows else (),
    )


def _counted(point: Point, end: TrainingEnd, samples: int | None) -> range:
    """Numbers of the steps that count, warm-up or not: of a training those of whole epochs, as in the analysis."""
    first, last = end.protocol.steady_from_step, end.steps or 2**62
    if point.work == "train" and samples:
        plan = EpochPlan.of(point, samples)
        edges = [edge for edge in map(plan.first_step, range((point.measure.epochs or 0) + 1)) if first <= edge <= last]
        if len(edges) > 1:
            return range(edges[0], edges[-1])
    return range(first, last)


class _Step(NamedTuple):
    start_ns: int
    ahead_ns: int
    after_ns: int
    total_ns: int


class _Sums(NamedTuple):
    total_ns: int
    ahead_ns: int
    waits_ns: int
    samples: int
    """0 where rows do not say."""


COLUMNS = ("step", "flags", "start_ns", "total_ns", "samples", *(f"{part}_ns" for part in (*AHEAD, *AFTER)))


def _sums(attempt: Path, rank: RankEnd, counted: range, steps: dict[int, _Step]) -> _Sums:
    """Over the steady steps of a rank, which are put into `steps`."""
    waits_ns = samples = 0
    for step, flags, start_ns, total_ns, of_step, *parts in _table(
        steps_file(attempt, rank.rank), rank.rows, rank.crc32, COLUMNS
    ):
        if not flags & ~AFTER_PAUSE and step in counted:
            steps[step] = _Step(start_ns, sum(parts[: len(AHEAD)]), sum(parts[len(AHEAD) :]), total_ns)
            if min(total_ns, *parts) < 0 or sum(parts) > 1.01 * total_ns:
                raise ValueError(f"the parts of step {step} cannot be true")
            waits_ns, samples = waits_ns + parts[0], samples + of_step
    total_ns, ahead_ns = sum(step.total_ns for step in steps.values()), sum(step.ahead_ns for step in steps.values())
    return _Sums(total_ns, ahead_ns, waits_ns, samples)


def _buckets(attempt: Path, rank: RankEnd, steps: Mapping[int, _Step]) -> tuple[Bucket, ...]:
    """Medians over steps: when each was ready, as a share of what lies between forward and the optimizer."""
    sizes, shares = dict[int, int](), dict[int, list[float]]()
    columns = ("step", "index", "bytes", "ready_ns")
    for number, index, size, ready_ns in _table(
        buckets_file(attempt, rank.rank), rank.bucket_rows or 0, rank.bucket_crc32, columns
    ):
        if step := steps.get(number):
            lasts_ns = step.total_ns - step.ahead_ns - step.after_ns
            sizes[index] = size
            shares.setdefault(index, []).append((ready_ns - step.start_ns - step.ahead_ns) / lasts_ns)
    return tuple(Bucket(sizes[index], min(1.0, max(0.0, statistics.median(shares[index])))) for index in sorted(sizes))


def _table(file: Path, rows: int, crc32: int | None, columns: Sequence[str]) -> Iterator[list[int]]:
    """Those columns of each row, 0 where a cell is empty or there is no such column; ValueError where it is not what end.json
    tells of it.
    """
    if not file.is_file():
        raise ValueError(f"{file.name} is no file")
    lines = file.read_bytes().splitlines(keepends=True)[: rows + 1]
    if len(lines) <= rows or zlib.crc32(b"".join(lines)) != crc32:
        raise ValueError(f"{file.name} does not match its checksum in end.json")
    table = csv.reader(line.decode("ascii") for line in lines)
    header = next(table)
    places = [header.index(name) if name in header else None for name in columns]
    for cells in table:
        yield [0 if place is None else int(cells[place] or 0) for place in places]


def is_measured(study: Study, point: Point, run: int) -> bool:
    """Whether the run is done and passes its checks; nothing else of it is read."""
    return _passed(study, point, run) is not None


def read_link(study: Study, point: Point, run: int) -> LinkFit | None:
    """What a benchmark of collectives found of the all-reduces of this layout; None where it is not done, or shows no rate."""
    if attempt := _passed(study, point, run):
        with contextlib.suppress(HpcddpError):
            found = read_record(CommRecord, attempt / "comm.json")
            fit = found.ops["all_reduce"].fit if found and "all_reduce" in found.ops else None
            return fit if fit and fit.bandwidth_bytes_per_s else None
    return None


def _passed(study: Study, point: Point, run: int) -> Path | None:
    done = _done(study, point, run)
    return done[0] if done and all(gate.passed for gate in done[1].gates) else None
