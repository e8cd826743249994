"""The attempts whose steps make up a run, each with its own rows, clocks and warm-up.

The last one's end.json tells whose steps count (`history`), each step once. What an attempt made beyond its last checkpoint was
made again by a later one, and attempts that are not named there made nothing that counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpcddp.analysis.records.attempt_files import read_end, read_launch
from hpcddp.analysis.records.boundaries import with_shared_boundaries
from hpcddp.analysis.records.buckets import RunBuckets, first_table, joined, read_buckets
from hpcddp.analysis.records.exchange_windows import Windows, windows_of
from hpcddp.analysis.records.impossible import check_end
from hpcddp.analysis.records.ranks import rank_results, read_steps, steady_from_step
from hpcddp.analysis.records.rows import Rejected
from hpcddp.analysis.records.schema import End, check_shape
from hpcddp.analysis.records.steps import RunSteps, before
from hpcddp.core.point import Point
from hpcddp.core.text import count

Plain = dict[str, Any]

ENDED = ("done", "interrupted")
"""States of an attempt that closed its files."""


@dataclass(frozen=True)
class Stretch:
    """Steps of a run that one of its attempts made and that count."""

    attempt: Path
    first_step: int
    steps: int | None
    """None: all it recorded."""

    @property
    def words(self) -> str:
        """`steps 73 to 132 (attempt 9.0)`; it is known how many there are."""
        last = self.first_step + (self.steps or 0) - 1
        return f"steps {self.first_step} to {last} (attempt {self.attempt.name})"


@dataclass(frozen=True)
class Part:
    """What an attempt recorded of its stretch."""

    attempt: Path
    launch: Plain
    end: Plain
    """end.json; of an attempt that did not come to write one what is known without."""
    told: Sequence[Plain]
    """What it says of each rank, in order."""
    steps: RunSteps
    windows: Windows

    @property
    def ended(self) -> bool:
        return self.end.get("state") in ENDED

    @property
    def hooked(self) -> bool:
        """Whether all-reduces were recorded of every rank, with checksum and clock."""
        return _hooked(self.told)

    @property
    def hosts(self) -> list[str]:
        """Of each rank."""
        return [str(entry["host"]) for entry in self.told]


def stretches_of(attempt: Path, end: Mapping[str, Any]) -> list[Stretch]:
    """Of the run that `attempt` ended, oldest first; Rejected where `history` cannot be: a step missing, or counted twice."""
    history = end.get("history")
    if not history:
        return [Stretch(attempt, 0, None)]
    found = [Stretch(attempt.parent / made["attempt"], made["first_step"], made["steps"]) for made in history]
    made = 0
    for stretch in found:
        if stretch.first_step != made:
            raise Rejected(f"end.json: history goes on at step {stretch.first_step} after {count(made, 'step')}")
        made += stretch.steps or 0
    names = [each["attempt"] for each in history]
    if len(set(names)) < len(names) or any(name in ("", ".", "..") or "/" in name or "\0" in name for name in names):
        raise Rejected("end.json: history names what are no attempts of one run")
    if attempt.name in names[:-1]:
        raise Rejected(f"end.json: history goes on after {attempt.name}, which ended the run")
    return found


def read_parts(attempt: Path, launch: Plain, end: Plain, point: Point | None, warnings: list[str]) -> list[Part]:
    """Of the run that `attempt` ended, oldest first.

    Rejected where its own records cannot be read. Which steps of earlier attempts are lost, and why, is added to `warnings`.
    """
    run = f"{attempt.parent.name} of {attempt.parent.parent.name}"
    stretches = stretches_of(attempt, end)
    ends = {each.attempt: end if each.attempt == attempt else read_end(each.attempt, warnings) for each in stretches}
    found = []
    for stretch in stretches:
        if stretch.attempt == attempt:
            found.append(_read(stretch, launch, end, warnings))
            continue
        try:
            part = _read_earlier(stretch, ends, launch, point, warnings)
        except (Rejected, KeyError) as reason:
            warnings.append(f"{run}: {stretch.words} are missing: {reason if isinstance(reason, Rejected) else f'no {reason}'}")
            continue
        if not part.ended:
            warnings.append(f"{run}: {stretch.words} count by their rows alone: it did not end, so nothing else checks them")
        found.append(part)
    if not found:
        raise Rejected("no attempt's step rows can be read")
    return found


def _read_earlier(
    stretch: Stretch, ends: Mapping[Path, Plain | None], last: Plain, point: Point | None, warnings: list[str]
) -> Part:
    """Rejected where it cannot be read, or is of other software than the last one, whose launch.json is `last`."""
    launch, end = read_launch(stretch.attempt, point), ends[stretch.attempt]
    if launch["env_id"] != last["env_id"]:
        raise Rejected(f"it is of the software environment {launch['env_id']}, the run's last attempt of {last['env_id']}")
    if end is None or end.get("state") not in ENDED:
        return _read(stretch, launch, _without_end(stretch, launch, ends.values()), warnings)
    check_shape(end, End, "end.json")
    check_end(end, point)
    return _read(stretch, launch, end, warnings)


def _without_end(stretch: Stretch, launch: Plain, others: Any) -> Plain:
    """What end.json would tell of ranks and warm-up. Nobody saw the end of this warm-up: it is as long as the longest one's."""
    hosts, per_node = launch.get("hosts") or [], launch.get("ranks_per_node") or 1
    at = [rank // per_node for rank in range(launch["ranks"])]
    ranks = [
        {"rank": rank, "host": hosts[node] if node < len(hosts) else "unknown", "rows": stretch.steps, "crc32": None}
        for rank, node in enumerate(at)
    ]
    warmup = max((_warmup_steps(end) for end in others if end is not None), default=0)
    return {"gates": [], "ranks": ranks, "protocol": {"steady_from_step": stretch.first_step + warmup}}


def _warmup_steps(end: Plain) -> int:
    """0 where nothing sensible is said of it."""
    try:
        check_shape(end, End, "end.json")
    except Rejected:
        return 0
    return max(0, steady_from_step(end) - (end.get("first_step") or 0))


def _read(stretch: Stretch, launch: Plain, end: Plain, warnings: list[str]) -> Part:
    stop = None if stretch.steps is None else stretch.first_step + stretch.steps
    told = rank_results(end, launch["ranks"])
    first = first_table(stretch.attempt, told[0], warnings) if _hooked(told) else None
    windows = windows_of(end, launch["ranks"], stop, first)
    steps = read_steps(stretch.attempt, end, launch["ranks"], warnings, windows.add if _hooked(told) else None, stop=stop)
    steps = with_shared_boundaries(steps, windows, [entry.get("clock") or {} for entry in told])
    if stop is not None:
        steps = before(steps, stop)
        if steps.step.size != stretch.steps or not np.array_equal(steps.step, np.arange(stretch.first_step, stop)):
            raise Rejected(f"the rows of attempt {stretch.attempt.name} are not those of {stretch.words.partition(' (')[0]}")
    return Part(stretch.attempt, launch, end, told, steps, windows)


def _hooked(told: Sequence[Plain]) -> bool:
    return all(entry.get("bucket_rows") for entry in told)


def buckets_of(parts: Sequence[Part], last: Path, warnings: list[str]) -> RunBuckets | None:
    """The all-reduces of all attempts that recorded them; None where none did.

    Rejected where those of the attempt `last` cannot be read; what is lost of others is added to `warnings`.
    """
    found = []
    for part in parts:
        try:
            buckets = read_buckets(part.attempt, part.end, part.launch["ranks"], warnings, part.windows)
        except Rejected as reason:
            if part.attempt == last:
                raise
            warnings.append(f"{'/'.join(part.attempt.parts[-3:])}: its all-reduces are left aside: {reason}")
            continue
        if buckets is not None:
            found.append(buckets)
    return joined(found) if found else None
