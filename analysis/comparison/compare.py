"""Two studies beside each other: how much faster the second trains than the first, point by point, and what else differs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from hpcddp.analysis.comparison import compared
from hpcddp.analysis.comparison.compared import Compared, MeasuredPoint, Unmatched
from hpcddp.analysis.study.effects import Ratio, ratio
from hpcddp.analysis.study.frames import runs_frame
from hpcddp.analysis.study.load import StudyRecords, load_study
from hpcddp.analysis.study.series import short_name, value_text
from hpcddp.analysis.study.trained import days
from hpcddp.analysis.util.files import record_or_none
from hpcddp.core.errors import UsageError
from hpcddp.core.launch_record import LaunchRecord, NodeRecord
from hpcddp.core.run_root import Study

INTERVAL = "95 %"

Judgement = Literal["slower", "slightly slower", "same", "slightly faster", "faster", "unclear"]
"""Slower and faster are beyond the threshold; slightly so is different for sure, but within it; the same is what may be 1."""

RECORDED = ("launcher", "communication", "git_commit", "tf32", "clock")
"""Keys of launch.json."""

OF_NODE = ("cpu", "kernel", "gpu_driver", "cpus_usable")
"""Keys of nodes/HOST.json."""

OF_THE_JOB = ("SLURM_", "MASTER_", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Variables that differ between any two jobs."""


@dataclass(frozen=True)
class ComparedPoint:
    """A point that both studies measured."""

    a: MeasuredPoint
    b: MeasuredPoint
    ratio: Ratio
    """Throughput of B / throughput of A."""
    judgement: Judgement
    accuracy: Compared | None
    to_accuracy: Compared | None

    @property
    def sure(self) -> bool:
        """Whether the judgement rests on an interval; otherwise it rests on the medians only."""
        return self.ratio.kind == INTERVAL


@dataclass(frozen=True)
class Difference:
    """A fact that is not the same in both studies; values are sorted, each once, `unknown` where it was not recorded."""

    name: str
    a: tuple[str, ...]
    b: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """What the records of the compared runs say of machines and software."""

    values: Mapping[str, tuple[str, ...]]
    dates: str
    """`2025-03-01`, or from and to; UTC."""


@dataclass(frozen=True)
class Side:
    """One of the two studies; `name` is the study's own, `place` is how the user named its folder."""

    name: str
    place: str
    records: StudyRecords
    facts: Facts
    unmatched: list[Unmatched]


@dataclass(frozen=True)
class StudyComparison:
    """The result of comparing two studies; `threshold` is a share, such as 0.05."""

    a: Side
    b: Side
    points: list[ComparedPoint]
    differences: list[Difference]
    effects: list[Compared]
    """Of keys that both studies varied."""
    threshold: float

    @property
    def regressions(self) -> list[ComparedPoint]:
        return [point for point in self.points if point.judgement == "slower"]

    @property
    def unfinished(self) -> list[Unmatched]:
        """Points of A that B has, but without a run that counts."""
        return [point for point in self.a.unmatched if point.unfinished]


def compare_studies(a: Study, b: Study, threshold: float, places: tuple[str, str] | None = None) -> StudyComparison:
    """B against A; `places` is how the user named them. UsageError where no point of one has a counterpart in the other."""
    records_a, records_b = load_study(a), load_study(b)
    runs_a, runs_b = runs_frame(records_a), runs_frame(records_b)
    of_a, of_b = compared.measured_points(records_a, runs_a), compared.measured_points(records_b, runs_b)
    pairs = compared.matched(of_a, of_b)
    mine, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    unmatched_a, unmatched_b = compared.unmatched(of_a, of_b, records_b, mine), compared.unmatched(of_b, of_a, records_a, theirs)
    named = places or (str(a.folder), str(b.folder))
    if not pairs:
        raise UsageError(_nothing(named, unmatched_a, unmatched_b))
    side_a = Side(records_a.name, named[0], records_a, facts(a, records_a, mine), unmatched_a)
    side_b = Side(records_b.name, named[1], records_b, facts(b, records_b, theirs), unmatched_b)
    points = [
        ComparedPoint(a, b, found, judgement_of(found, threshold), compared.compared_accuracy(a, b), compared.compared_time(a, b))
        for a, b, found in ((mine, theirs, ratio(theirs.rates, mine.rates)) for mine, theirs in pairs)
    ]
    effects = compared.compared_effects((records_a, runs_a), (records_b, runs_b))
    return StudyComparison(side_a, side_b, points, differences(side_a.facts, side_b.facts), effects, threshold)


def judgement_of(found: Ratio, threshold: float) -> Judgement:
    """`slower` where all of the 95 % interval lies below 1 - threshold; without an interval (fewer than six runs) the ratio of
    medians decides.

    `slightly slower` where all of it lies below 1 but not below 1 - threshold; medians cannot show that.
    """
    low, high = (found.low, found.high) if found.kind == INTERVAL else (found.ratio, found.ratio)
    assert low is not None
    assert high is not None
    if high < 1 - threshold:
        return "slower"
    if low > 1 + threshold:
        return "faster"
    if low < 1 - threshold or high > 1 + threshold:
        return "unclear"
    if found.kind == INTERVAL and not low <= 1 <= high:
        return "slightly slower" if high < 1 else "slightly faster"
    return "same"


def _nothing(places: tuple[str, str], unmatched_a: Sequence[Unmatched], unmatched_b: Sequence[Unmatched]) -> str:
    if not unmatched_a or not unmatched_b:
        empty = places[0] if not unmatched_a else places[1]
        return f"{empty}: no run of it counts, so there is nothing to compare; `hpcddp analyze {empty}` says why"
    first = unmatched_a[0]
    return f"no point of {places[0]} is in {places[1]}: of {first.label}, {first.reason}"


def facts(study: Study, records: StudyRecords, measured_points: Iterable[MeasuredPoint]) -> Facts:
    """Reads launch.json and nodes/*.json of the groups' runs; those that are damaged say nothing."""
    attempts = {run.key: run.attempt for run in records.runs}
    found: dict[str, set[str]] = {}
    started: list[int] = []
    for group in measured_points:
        for name, value in group.key.items():
            found.setdefault(short_name(name), set()).add(value_text(value))
        for key in group.runs:
            folder = study.run_dir(*key) / str(attempts[key])
            launch = record_or_none(LaunchRecord, folder / "launch.json")
            for name, text in (*(_launched(launch) if launch else ()), *_of_nodes(folder)):
                found.setdefault(name, set()).add(text)
            if launch and launch.started_unix_ns is not None:
                started.append(launch.started_unix_ns)
    return Facts({name: tuple(sorted(texts)) for name, texts in found.items()}, days(started) or "at an unknown date")


def differences(a: Facts, b: Facts) -> list[Difference]:
    """Facts that differ, by name, apart from what the points' layouts make different."""
    unknown = ("unknown",)
    pairs = ((name, a.values.get(name, unknown), b.values.get(name, unknown)) for name in sorted({*a.values, *b.values}))
    return [Difference(name, mine, theirs) for name, mine, theirs in pairs if mine != theirs]


def _launched(launch: LaunchRecord) -> Iterator[tuple[str, str]]:
    for name, version in launch.versions.items():
        yield name, str(version or "none")
    for name in RECORDED:
        yield name.replace("_", " "), _words(getattr(launch, name))
    for name, value in launch.environment.items():
        if not name.startswith(OF_THE_JOB):
            yield f"${name}", str(value)


def _of_nodes(attempt: Path) -> Iterator[tuple[str, str]]:
    for file in sorted(attempt.glob("nodes/*.json")):
        node = record_or_none(NodeRecord, file)
        yield from ((name.replace("_", " "), str(value)) for name in OF_NODE if (value := getattr(node, name, None)) is not None)


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(each)}" for name, each in sorted(value.items()))
    return {True: "yes", False: "no", None: "unknown"}.get(value, str(value))


def compared_plain(found: StudyComparison) -> dict[str, Any]:
    """The comparison as `--format json` and compare.json hold it; every float is finite, unknown is None."""
    return {
        "schema": 1,
        "a": _side(found.a),
        "b": _side(found.b),
        "threshold": found.threshold,
        "points": [_point(point) for point in found.points],
        "regressions": [point.a.label for point in found.regressions],
        "differences": [asdict(each) for each in found.differences],
        "effects": [{**each.about, "a": each.a, "b": each.b, "differs": bool(each.text)} for each in found.effects],
    }


def _side(side: Side) -> dict[str, Any]:
    return {"name": side.name, "dates": side.facts.dates, "unmatched": [asdict(each) for each in side.unmatched]}


def _point(point: ComparedPoint) -> dict[str, Any]:
    nodes, gpus = point.a.layout
    sides = {
        f"{key}_{side}": value
        for side, group in (("a", point.a), ("b", point.b))
        for key, value in (("label", group.label), ("n", len(group.rates)), ("runs", [list(run) for run in group.runs]))
    }
    return {
        "nodes": nodes,
        "gpus_per_node": gpus,
        **sides,
        "samples_per_s_a": median_rate(point.a),
        "samples_per_s_b": median_rate(point.b),
        "ratio": point.ratio.ratio,
        "low": point.ratio.low,
        "high": point.ratio.high,
        "interval": point.ratio.kind,
        "verdict": point.judgement,
        "accuracy": point.accuracy and point.accuracy.plain,
        "to_accuracy": point.to_accuracy and point.to_accuracy.plain,
        "readings": {name: {"a": mine, "b": point.b.readings.get(name)} for name, mine in point.a.readings.items()},
    }


def median_rate(group: MeasuredPoint) -> float:
    """Median throughput, samples/s."""
    return float(statistics.median(group.rates))
