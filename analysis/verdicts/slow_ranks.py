"""Who is slow by itself, run by run, and what it costs: from step rows alone."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.runs.slow_ranks import Unevenness
from hpcddp.analysis.util.wording import percent
from hpcddp.analysis.verdicts.context import Case, Row

SLOWER = 0.05
"""Of the step, for good: more than twice what ranks of sound runs differ by, half of what a node costs that a site takes out."""

MOSTLY = 0.5
"""Of all waiting for each other: a rank that is slow for good explains it all, the luckless one of many in turn a small part."""

WORDS = {
    "data_wait": "waiting for its batch",
    "h2d_exposed": "copying its batch",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "the optimizer",
    "record": "writing records",
    "other": "between the parts",
}


@dataclass(frozen=True)
class SlowRanks:
    """Ranks that the others wait for: one, or those of a host."""

    name: str
    """`rank 3 on r007`, or `r007`."""
    host: str
    over_ns: float
    """More than the median rank, a step."""
    part: str | None
    """In which most of that is; None where the parts were not measured."""

    @property
    def by_data(self) -> bool:
        return self.part == "data_wait"


def slow_ranks(found: Unevenness, step_ns: float) -> list[SlowRanks]:
    """Of a run, the slowest first."""
    limit = max(SLOWER * step_ns, MOSTLY * found.often_ns)
    slow = [rank for rank, over_ns in enumerate(found.over_ns) if over_ns > limit]
    groups: dict[str, list[int]] = {}
    for rank in slow:
        host = found.hosts[rank]
        groups.setdefault(host if _is_slow(host, found, slow) else f"rank {rank} on {host}", []).append(rank)
    named = [
        SlowRanks(name, found.hosts[mine[0]], max(found.over_ns[r] for r in mine), _part(found, mine))
        for name, mine in groups.items()
    ]
    return sorted(named, key=lambda each: -each.over_ns)


def _is_slow(host: str, found: Unevenness, slow: Sequence[int]) -> bool:
    """Whether most of a host's ranks are slow: one host of several, with more than one rank."""
    ranks = found.hosts.count(host)
    return len(set(found.hosts)) > 1 and 2 * sum(found.hosts[rank] == host for rank in slow) > ranks > 1


def _part(found: Unevenness, ranks: Sequence[int]) -> str | None:
    by_part = {part: sum(values[rank] for rank in ranks) for part, values in found.part_over_ns.items()}
    return max(by_part, key=lambda part: by_part[part], default=None)


def part_of(run: Run, name: str) -> str | None:
    """The part in which that rank or host of the run needs most of what it needs longer; None where that is not known."""
    found = run.unevenness
    if found is None:
        return None
    ranks = [rank for rank, host in enumerate(found.hosts) if name in (host, f"rank {rank} on {host}")]
    return _part(found, ranks) if ranks else None


def waiting_share(case: Case, row: Row) -> float:
    """Of a point's step, what ranks wait for each other at least, by step rows alone: the median over its runs; 0 if unknown."""
    shares = [run.unevenness.waiting_ns / run.step_ns for run in case.runs_of(row) if run.unevenness and run.step_ns]
    return statistics.median(shares) if shares else 0.0


def data_share(run: Run) -> float | None:
    """By which share of the step it would be shorter if no rank ever waited for data; None where that is not known."""
    return run.unevenness.data_ns / run.step_ns if run.unevenness and run.step_ns else None


def faster(share: float) -> str:
    """`up to 49 % faster`: the step without that share of it."""
    return f"up to {percent(1 / (1 - min(share, 0.99)) - 1)} faster"
