"""Who is slow by itself, run by run, and what it costs: from step rows alone."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.runs.slow_ranks import Unevenness
from hpcddp.analysis.util.wording import percent
from hpcddp.analysis.verdicts.context import Case, PointRow

SLOWER = 0.05
"""Share of the step that a slow rank always needs more: over twice what ranks of sound runs differ by, half of what a node
costs that a site takes out of service."""

MOSTLY = 0.5
"""Share of all waiting: a rank that is always slow explains all of it, a rank that was slow now and then, like others, a small
part."""

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
    """Time per step beyond that of the median rank."""
    part: str | None
    """The part of the step that holds most of that time; None where the parts were not measured."""

    @property
    def by_data(self) -> bool:
        return self.part == "data_wait"


def slow_ranks(found: Unevenness, step_ns: float) -> list[SlowRanks]:
    """The slow ranks of a run, the slowest first."""
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
    """The part of the step that holds most of the time which that rank or host needs beyond the others; None where that is not
    known."""
    ranks = _ranks_of(run, name)
    return _part(run.unevenness, ranks) if run.unevenness and ranks else None


def over_of(run: Run, name: str) -> float | None:
    """Time per step, ns, that the slowest rank of that name needs beyond the median rank; None where that is not known."""
    return max((run.unevenness.over_ns[rank] for rank in _ranks_of(run, name)), default=None) if run.unevenness else None


def _ranks_of(run: Run, name: str) -> list[int]:
    hosts = run.unevenness.hosts if run.unevenness else ()
    return [rank for rank, host in enumerate(hosts) if name in (host, f"rank {rank} on {host}")]


def waiting_share(case: Case, row: PointRow) -> float:
    """The share of a point's step that ranks wait for each other at least, by step rows only: the median over its runs; 0 where
    it is not known."""
    shares = [run.unevenness.waiting_ns / run.step_ns for run in case.runs_of(row) if run.unevenness and run.step_ns]
    return statistics.median(shares) if shares else 0.0


def data_share(run: Run) -> float | None:
    """The share of the step that would be saved if no rank ever waited for data; None where that is not known."""
    return run.unevenness.data_ns / run.step_ns if run.unevenness and run.step_ns else None


def faster(share: float) -> str:
    """`up to 49 % faster`: the step without that share of it."""
    return f"up to {percent(1 / (1 - min(share, 0.99)) - 1)} faster"
