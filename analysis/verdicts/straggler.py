"""Straggler: a host, or on one node a rank, that the others wait for; a slow link; nodes that preflight had named before."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from hpcddp.analysis.records.json_files import latest_on
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.runs.slow_ranks import Unevenness
from hpcddp.analysis.util.wording import capital, more_runs, percent, quantity
from hpcddp.analysis.verdicts import context
from hpcddp.analysis.verdicts.context import AGAIN, HOSTS, LIMITED, Advice, Case, PointRow, Set, Verdict, by_slurm, phrase
from hpcddp.core.preflight import SlowReading, below_words
from hpcddp.core.text import count, natural

OFTEN_LAST = 0.8
COSTLY = 0.02
"""A straggler is the last rank at more than this share of all-reduces, and costs more than this share of the step."""

OWN_TIME = 0.5
"""Share of what others wait for it that the last rank must need longer by itself: else, say, its gradients come late."""

SLOW_LINK = 1.5
"""Times the median host's transfer that gradients take to one whose link is slow."""


@dataclass(frozen=True)
class Straggler:
    """A rank or host that the others wait for in one run."""

    run: Run
    who: str
    host: str
    part: str | None
    """The part of the step that holds most of the time it needs beyond the others; None where that is not known."""
    wait_s: float
    """How long the others wait for it, per step."""
    cost: float
    """The same as a share of the step."""
    last: float | None
    """The share of all-reduces at which it was the last to be ready; None where step rows alone say that it is slow."""


def straggler(case: Case) -> Iterator[Verdict]:
    """A host, or on one node a rank, that the others wait for in runs that count."""
    found = _found(case)
    for name in sorted({each.who for each in found}):
        mine = sorted((each for each in found if each.who == name), key=lambda each: -each.cost)
        worst, runs = mine[0], context.run_names([each.run for each in mine])
        more = more_runs(len(runs), " The same holds for {}.")
        yield Verdict(
            where=f"on {name}",
            evidence=f"{_evidence(worst)} Without this wait, a step would be {faster(worst.cost)}.{more}",
            todo=_straggler_advice(worst),
            numbers={**({} if worst.last is None else {"last": worst.last}), "wait_s": worst.wait_s, "cost": worst.cost}
            | {"found_in_runs": len(runs)},
            runs=runs,
            weight=LIMITED + min(0.99, worst.cost),
        )


def _found(case: Case) -> list[Straggler]:
    hooked = list(_by_all_reduces(case))
    return [*hooked, *_by_own_time(case, {(each.run.name, each.host) for each in hooked})]


def _evidence(found: Straggler) -> str:
    wait, who = f"{quantity(found.wait_s * 1e3)} ms", capital(found.who)
    if found.last is not None:
        return (
            f"{who} was the last to be ready at {percent(found.last)} of the all-reduces of {found.run.name}. The other ranks "
            f"waited {wait} per step for it ({percent(found.cost)} of the step)."
        )
    part = f" Most of that time is {WORDS[found.part]}." if found.part else ""
    than = f"than the median rank of {found.run.name} ({percent(found.cost)} of the step)"
    return f"{who} needs {wait} per step more {than}.{part} The other ranks wait for it."


def _by_all_reduces(case: Case) -> Iterator[Straggler]:
    """Stragglers by the order in which ranks are ready for all-reduces, in runs with the communication hook. Step rows must not
    contradict it: by them the rank, or one of the host, computes longer; in a run unlike the others as much longer as a straggler
    by step rows alone."""
    by_key: dict[Hashable, Run] = {run.key: run for run in case.counting}
    groups = case.stragglers.groupby(["label", "run"], sort=True)
    judged = [(run, culprit(run, ranks)) for key, ranks in groups if (run := by_key.get(key)) and run.step_ns]
    runs = Counter(run.label for run, _ in judged)
    often = Counter((run.label, found.who) for run, found in judged if found)
    for run, found in judged:
        if found is None:
            continue
        uneven, who = run.unevenness, found.who
        ranks = [rank for rank, host in enumerate(uneven.hosts if uneven else ()) if who in (host, f"rank {rank} on {host}")]
        over_ns = max((uneven.over_ns[rank] for rank in ranks), default=None) if uneven else None
        unlike = 2 * often[run.label, found.who] < runs[run.label]
        least_ns = max(OWN_TIME * found.wait_s * 1e9, SLOWER * (run.step_ns or 0.0) * unlike)
        if over_ns is None or over_ns >= least_ns:
            yield replace(found, part=_part(uneven, ranks) if uneven and ranks else None)


def slow_link(case: Case) -> Iterator[Verdict]:
    """A node to which gradients take longer than to the others, in runs whose exchange was split."""
    found = [(run, *link) for run in case.counting if (link := _late_host(run))]
    for host in sorted({host for _, host, _, _ in found}, key=natural):
        mine = [(run, its_ns, others_ns) for run, name, its_ns, others_ns in found if name == host]
        run, its_ns, others_ns = max(mine, key=lambda each: each[1] - each[2])
        cost, more = (its_ns - others_ns) / (run.step_ns or its_ns), more_runs(len(mine), " The same holds for {}.")
        yield Verdict(
            where=f"on {host}",
            evidence=f"Gradients reach {host} {quantity(its_ns / 1e6)} ms after the last rank is ready, and the other nodes "
            f"after {quantity(others_ns / 1e6)} ms ({run.name}). All nodes wait for {host}.{more}",
            todo=phrase(f"Ask the site to check the network link of {host}, and ", _exclude(run, host), f". {AGAIN}"),
            numbers={"transfer_s": its_ns / 1e9, "others_s": others_ns / 1e9, "cost": cost, "found_in_runs": len(mine)},
            runs=context.run_names([run for run, _, _ in mine]),
            weight=LIMITED + 0.99,
        )


def link_share(case: Case, row: PointRow) -> float | None:
    """The share of a point's step that all wait for gradients to reach one node, the median over its runs; None without such."""
    links = [(_late_host(run), run.step_ns) for run in case.runs_of(row) if run.exchange]
    share = statistics.median((link[1] - link[2]) / ns if link and ns else 0.0 for link, ns in links) if links else 0.0
    return share or None


def _late_host(run: Run) -> tuple[str, float, float] | None:
    """The host, its transfer and that of the median other host, ns; None where none is late, or hosts are fewer than two."""
    if run.exchange is None or run.exchange.transfer_ns is None or not run.step_ns:
        return None
    by_host = run.exchange.ranks.groupby("host")["transfer_ns"].mean().sort_values()
    if len(by_host) < 2:
        return None
    its_ns, others_ns = float(by_host.iloc[-1]), float(by_host.iloc[:-1].median())
    late = its_ns > SLOW_LINK * others_ns and its_ns - others_ns > COSTLY * run.step_ns
    return (str(by_host.index[-1]), its_ns, others_ns) if late else None


def _exclude(run: Run, host: str) -> Advice:
    return phrase("exclude the node with ", Set({HOSTS: host})) if by_slurm(run) else f"exclude {host}"


def _by_own_time(case: Case, hooked: Collection[tuple[str, str]]) -> Iterator[Straggler]:
    """By step rows only: slow in at least half of the runs of a point that the host took part in; one bad moment makes none."""
    timed = [run for run in case.counting if run.unevenness and run.step_ns]
    slow = [(run, each) for run in timed if run.unevenness and run.step_ns for each in slow_ranks(run.unevenness, run.step_ns)]
    of_name = Counter((run.label, each.name) for run, each in slow)
    took_part = Counter((run.label, host) for run in timed if run.unevenness for host in set(run.unevenness.hosts))
    for run, each in slow:
        known = (run.name, each.host) in hooked  # said by its all-reduces
        if not known and 2 * of_name[run.label, each.name] >= took_part[run.label, each.host]:
            yield Straggler(run, each.name, each.host, each.part, each.over_ns / 1e9, each.over_ns / (run.step_ns or 1.0), None)


def waited_share(case: Case, row: PointRow) -> float | None:
    """The share of a point's step that others wait for a straggler, the median over its runs; None where at most COSTLY."""
    found = _found(case)
    worst = [max((each.cost for each in found if each.run is run), default=0.0) for run in case.runs_of(row)]
    share = statistics.median(worst or [0.0])
    return share if share > COSTLY else None


def culprit(run: Run, ranks: pd.DataFrame) -> Straggler | None:
    """The rank, otherwise the host, that is last at nearly every all-reduce and costs something; in which part is not said."""
    if len(ranks) < 2:
        return None
    number, at, last_at = (ranks[name].to_numpy() for name in ("rank", "host", "last"))
    hosts = sorted(set(at)) if len(set(at)) > 1 else []
    by_rank = ((f"rank {rank} on {host}", number == rank) for rank, host in zip(number, at, strict=True))
    for who, mine in itertools.chain(by_rank, ((host, at == host) for host in hosts)):
        if last_at[mine].sum() <= OFTEN_LAST:
            continue
        last, wait_s = min(1.0, float(ranks.loc[mine, "last"].sum())), float(ranks.loc[~mine, "peer_wait_s"].mean())
        cost = wait_s * 1e9 / (run.step_ns or math.inf)
        if last > OFTEN_LAST and cost > COSTLY:
            return Straggler(run, who, str(ranks.loc[mine, "host"].iloc[0]), None, wait_s, cost, last)
    return None


def _straggler_advice(worst: Straggler) -> Advice:
    """What to do about it: look at its loader or its processor; take another node where there is one."""
    several, exclude = worst.run.point and worst.run.point.layout.nodes > 1, _exclude(worst.run, worst.host)
    if worst.part == "data_wait":
        compare = f"Compare how {worst.host} reads the data, and its loader workers' cores, with others. Its batches are late."
        if several:
            return phrase(f"{compare} If they stay late, ", exclude, f". {AGAIN}")
        return phrase(f"{compare} Time its loaders alone with ", Set({"measure.input": "io"}), ".")
    if several:
        shown = "stragglers.csv (written with `--to csv`)" if worst.last else "the figure of ranks"
        return phrase(f"Send {shown} to the site, and ", exclude, f". {AGAIN}")
    return "Compare that rank's GPU and cores with those of other ranks (clocks, temperature, NUMA node, other processes)."


def slow_nodes(case: Case) -> Iterator[Verdict]:
    """A verdict for each such node. One that the steps themselves show to be slow is a straggler, and that is said already."""
    known, found = {each.host for each in _found(case)}, dict[str, list[Run]]()
    for run in case.counting:
        for host in run.signals.hosts if run.signals else ():
            if host not in known and named_slow(case, run, host):
                found.setdefault(host, []).append(run)
    yield from (_verdict(case, host, runs) for host, runs in sorted(found.items(), key=lambda each: natural(each[0])))


def named_slow(case: Case, run: Run, host: str) -> list[SlowReading]:
    """In what preflight had found the host slow when the run began."""
    began = run.signals.began_unix_ns if run.signals else None
    record = latest_on(host, case.records.preflights, began)
    return [slow for slow in record.slow if slow.host == host] if record else []


def _verdict(case: Case, host: str, runs: Sequence[Run]) -> Verdict:
    slow = named_slow(case, runs[0], host)
    spare = phrase(", or request a spare node with ", Set({"slurm.spare_nodes": 1}))
    exclude = phrase("Exclude the node with ", Set({HOSTS: host}), spare) if any(map(by_slurm, runs)) else f"Exclude {host}"
    return Verdict(
        where=f"on {host}",
        evidence=f"Preflight found its {' and its '.join(map(below_words, slow))} of {count(slow[0].nodes, 'node')}. "
        f"{count(len(runs), 'included run')} ran there ({runs[0].name}{' and others' if len(runs) > 1 else ''}).",
        todo=phrase(exclude, f". {AGAIN}"),
        numbers={"below": slow[0].below, "runs": len(runs)},
        runs=context.run_names(runs),
        weight=LIMITED,
    )


SLOWER = 0.05
"""Share of the step that a slow rank always needs more: over twice what ranks of sound runs differ by, half of what a node
costs that a site takes out of service."""

MOSTLY = 0.5
"""Share of all waiting: a rank that is always slow explains all of it, one that was slow now and then a small part."""

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


def slow_ranks(found: Unevenness, step_ns: float) -> list[SlowRanks]:
    """The slow ranks of a run, the slowest first."""
    limit = max(SLOWER * step_ns, MOSTLY * found.often_ns)
    slow = [rank for rank, over_ns in enumerate(found.over_ns) if over_ns > limit]
    of_host, slow_of = Counter(found.hosts), Counter(found.hosts[rank] for rank in slow)
    groups: dict[str, list[int]] = {}
    for rank in slow:
        host = found.hosts[rank]
        is_host = len(of_host) > 1 and 2 * slow_of[host] > of_host[host] > 1  # most of a host's ranks, of several hosts
        groups.setdefault(host if is_host else f"rank {rank} on {host}", []).append(rank)
    named = [
        SlowRanks(name, found.hosts[mine[0]], max(found.over_ns[r] for r in mine), _part(found, mine))
        for name, mine in groups.items()
    ]
    return sorted(named, key=lambda each: -each.over_ns)


def _part(found: Unevenness, ranks: Sequence[int]) -> str | None:
    by_part = {part: sum(values[rank] for rank in ranks) for part, values in found.part_over_ns.items()}
    return max(by_part, key=lambda part: by_part[part], default=None)


def waiting_share(case: Case, row: PointRow) -> float:
    """The share of a point's step that ranks wait for each other at least, by step rows: the median over runs; 0: unknown."""
    shares = [run.unevenness.waiting_ns / run.step_ns for run in case.runs_of(row) if run.unevenness and run.step_ns]
    return statistics.median(shares) if shares else 0.0


def data_share(run: Run) -> float | None:
    """The share of the step that would be saved if no rank ever waited for data; None where that is not known."""
    return run.unevenness.data_ns / run.step_ns if run.unevenness and run.step_ns else None


def faster(share: float) -> str:
    """`up to 49 % faster`: the step without that share of it."""
    return f"up to {percent(1 / (1 - min(share, 0.99)) - 1)} faster"
