"""Time to an accuracy in two studies: at one target that all runs of both reached, otherwise not at all, with the reason."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hpcddp.analysis.comparison.match import MeasuredPoint
from hpcddp.analysis.records.epochs import Epoch
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.effects import Ratio, ratio
from hpcddp.analysis.study.epochs import GIVEN, reached, target_of
from hpcddp.analysis.util.wording import effort
from hpcddp.core.text import count


@dataclass(frozen=True)
class TimesToTarget:
    """Of one side's runs: the epochs at whose end those that reached the target did."""

    ends: tuple[Epoch, ...]
    runs: int

    @property
    def times_s(self) -> list[Fraction]:
        """Training alone, without evaluations."""
        return [Fraction(end.train_ns, 10**9) for end in self.ends]

    @property
    def epochs(self) -> float:
        """Median."""
        return float(statistics.median(end.epoch for end in self.ends))


@dataclass(frozen=True)
class ComparedTime:
    """How many times as fast B is at the target as A, or why that is not said."""

    target: Fraction | None
    of: str
    """Where the target is from."""
    a: TimesToTarget | None
    b: TimesToTarget | None
    ratio: Ratio | None
    """Time of A / time of B."""
    why_not: str | None


def compared_time(a: MeasuredPoint, b: MeasuredPoint) -> ComparedTime | None:
    """None where neither side trained whole epochs."""
    if not a.trainings and not b.trainings:
        return None
    target, of = target_of([*a.trainings, *b.trainings])
    why_not = _why_not(a.trainings, b.trainings, target)
    if target is None or why_not:
        return ComparedTime(target, of, None, None, None, why_not)
    mine, theirs = _times(a.trainings, target), _times(b.trainings, target)
    if len(mine.ends) < mine.runs or len(theirs.ends) < theirs.runs:
        parts = (f"{len(each.ends)} of {count(each.runs, 'run')} of {side}" for side, each in (("A", mine), ("B", theirs)))
        return ComparedTime(target, of, mine, theirs, None, f"{' and '.join(parts)} reached {_percent(target)}")
    return ComparedTime(target, of, mine, theirs, ratio(mine.times_s, theirs.times_s), None)


def _why_not(mine: Sequence[Run], theirs: Sequence[Run], target: Fraction | None) -> str | None:
    if not mine or not theirs:
        return f"only {'B' if theirs else 'A'} has runs of whole epochs"
    if target is None:
        return "some runs were never evaluated"
    a, b = (sorted({each.total for run in runs for each in run.epochs or () if each.total}) for runs in (mine, theirs))
    if a != b:
        return f"A was evaluated on {_sizes(a)} samples, B on {_sizes(b)}"
    return None


def _sizes(found: Sequence[int]) -> str:
    return " or ".join(f"{size:,}" for size in found)


def _times(runs: Sequence[Run], target: Fraction) -> TimesToTarget:
    ends = [reached(run.epochs or (), target) for run in runs]
    return TimesToTarget(tuple(end for end in ends if end is not None), len(runs))


def _percent(target: Fraction) -> str:
    return f"{float(100 * target):.2f} %"


def time_text(found: ComparedTime) -> str:
    """`93.00 % after 57.2 s (12 epochs) -> 50.1 s (12 epochs): B is there 1.142 times as fast (95 % 1.101-1.213)`"""
    if found.ratio is None or found.target is None or found.a is None or found.b is None:
        return f"not compared: {found.why_not}"
    which = "" if found.of == GIVEN else f", {found.of},"
    mine, theirs = (effort(_middle_s(each), each.epochs) for each in (found.a, found.b))
    ends = "" if found.ratio.low is None else f" ({found.ratio.kind} {found.ratio.low:.3f}-{found.ratio.high:.3f})"
    return f"{_percent(found.target)}{which} after {mine} -> {theirs}: B is there {found.ratio.ratio:.3f} times as fast{ends}"


def _middle_s(of: TimesToTarget) -> float:
    return float(statistics.median(of.times_s))


def time_plain(a: MeasuredPoint, b: MeasuredPoint) -> dict[str, Any] | None:
    """For compare.json."""
    found = compared_time(a, b)
    if found is None:
        return None
    times = found.ratio
    return {
        "target": None if found.target is None else float(found.target),
        "target_of": found.of,
        "a": _side(found.a),
        "b": _side(found.b),
        "ratio": times.ratio if times else None,
        "low": times.low if times else None,
        "high": times.high if times else None,
        "interval": times.kind if times else None,
        "why_not": found.why_not,
    }


def _side(of: TimesToTarget | None) -> dict[str, Any] | None:
    """Medians, where all runs reached the target."""
    if of is None:
        return None
    known = len(of.ends) == of.runs
    return {
        "n": of.runs,
        "reached": len(of.ends),
        "train_s": _middle_s(of) if known else None,
        "epochs": of.epochs if known else None,
    }
