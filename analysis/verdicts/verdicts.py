"""Verdicts: named findings about a study, each with its evidence and the next thing to do. A closed list; sound studies get none.

    context.py        what a verdict is, and what each function below is given
    gates.py          no run counts, unsynchronised ranks, wrong evaluation, clock throttling, shared node
    steps.py          too few steps, warm-up inside the window, burst network
    comparability.py  contradicting figures, noisy and suspect baselines, mixed hardware and software, missing baselines
    gates.py        damaged data
    binding.py          CPU starvation
    binding.py        shared cores, far socket
    input.py          input-bound
    computation.py    slower computation
    steps.py         stalls
    comm.py           latency-bound, communication-bound
    straggler.py      straggler, slow link, slow node (by preflight)
    input.py         uneven ranks
    slow_ranks.py     who is slow, for these two
    transport.py      TCP instead of RDMA, idle adapters, no GPUDirect RDMA

What they read of each run is in runs/signals.py, runs/slow_ranks.py and runs/step_times.py.
Each function is given a Case and yields Verdicts; every threshold stands above its use with the reason for it.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.util.output import Failures
from hpcddp.analysis.util.wording import WIDE
from hpcddp.analysis.verdicts.binding import cores_shared, cpu_starvation, far_socket, starved_share
from hpcddp.analysis.verdicts.comm import comm_share, communication_bound, latency_bound, latency_share
from hpcddp.analysis.verdicts.comparability import (
    baseline_missing,
    contradicting,
    mixed_hardware,
    mixed_software,
    noisy_baseline,
    suspect_baseline,
)
from hpcddp.analysis.verdicts.computation import slower_computation, slower_share
from hpcddp.analysis.verdicts.context import Case, PointRow, Verdict
from hpcddp.analysis.verdicts.gates import (
    clock_throttling,
    damaged_data,
    nothing_counts,
    shared_node,
    unsynchronised,
    wrong_evaluation,
)
from hpcddp.analysis.verdicts.input import input_bound, input_share, uneven_ranks, uneven_share
from hpcddp.analysis.verdicts.steps import burst_network, stalled_share, stalls, too_few_steps, warmup_inside
from hpcddp.analysis.verdicts.straggler import link_share, slow_link, slow_nodes, straggler, waited_share
from hpcddp.analysis.verdicts.transport import idle_adapters, no_gpudirect, tcp_instead_of_rdma

ALL: Mapping[str, Callable[[Case], Iterator[Verdict]]] = {
    "no run counts": nothing_counts,
    "unsynchronised ranks": unsynchronised,
    "wrong evaluation": wrong_evaluation,
    "clock throttling": clock_throttling,
    "shared node": shared_node,
    "damaged data": damaged_data,
    "mixed hardware": mixed_hardware,
    "mixed software": mixed_software,
    "contradicting figures": contradicting,
    "warm-up inside the window": warmup_inside,
    "too few steps": too_few_steps,
    "noisy baseline": noisy_baseline,
    "suspect baseline": suspect_baseline,
    "burst network": burst_network,
    "TCP instead of RDMA": tcp_instead_of_rdma,
    "idle adapters": idle_adapters,
    "no GPUDirect RDMA": no_gpudirect,
    "CPU starvation": cpu_starvation,
    "shared cores": cores_shared,
    "far socket": far_socket,
    "input-bound": input_bound,
    "slower computation": slower_computation,
    "stalls": stalls,
    "straggler": straggler,
    "slow link": slow_link,
    "slow node": slow_nodes,
    "uneven ranks": uneven_ranks,
    "latency-bound": latency_bound,
    "communication-bound": communication_bound,
    "baseline missing": baseline_missing,
}
"""Name of a verdict -> the function that finds it."""

CAUSES: Mapping[str, tuple[Callable[[Case, PointRow], float | None], str]] = {
    "CPU starvation": (starved_share, "too few processor cores"),
    "input-bound": (input_share, "waiting for data"),
    "slower computation": (slower_share, "computation that is slower with more ranks"),
    "stalls": (stalled_share, "steps that stall now and then"),
    "straggler": (waited_share, "waiting for one slow rank or node"),
    "slow link": (link_share, "waiting for gradients over one slow link"),
    "uneven ranks": (uneven_share, "ranks that wait for each other in turn"),
    "latency-bound": (latency_share, "many small messages between ranks"),
    "communication-bound": (comm_share, "exchanging gradients"),
}
"""What may hold a point back, how much of it, and how the sentence says it."""

DOUBTS: Mapping[str, str] = {
    "too few steps": "too few timed steps",
    "noisy baseline": "a baseline whose runs differ",
    "suspect baseline": "a baseline that is slower than larger points",
    "mixed hardware": "GPUs of several types",
    "mixed software": "several versions of software",
    "contradicting figures": "figures that contradict each other",
    "warm-up inside the window": "warm-up among the timed steps",
    "burst network": "a network that is faster in bursts",
    "shared node": "other jobs on the nodes",
}
"""Verdicts that leave the numbers of runs that count open, and how the sentence says it."""

MARGIN = " " * 11
OF_A_KIND = 2
"""Verdicts of one name that the terminal shows; report.json has them all."""


def verdicts(case: Case, failures: Failures) -> list[Verdict]:
    """All verdicts on a study: the weightiest first, of equal weights those of most runs, then in the order of ALL."""
    none: list[Verdict] = []
    each = [failures.contain(f"the verdict `{name}`", partial(_all_of, name, find, case), none) for name, find in ALL.items()]
    found = list(itertools.chain.from_iterable(each))
    return sorted(found, key=lambda verdict: (-verdict.weight, -len(verdict.runs)))


def _all_of(name: str, find: Callable[[Case], Iterator[Verdict]], case: Case) -> list[Verdict]:
    return [replace(verdict, name=name) for verdict in find(case)]


def cause(case: Case, row: PointRow) -> str | None:
    """What holds a point back most, in a newcomer's words; None where nothing does that verdicts know."""
    shares = {words: share for find, words in CAUSES.values() if (share := find(case, row)) is not None}
    return max(shares, key=lambda words: shares[words], default=None)


def doubts(found: Sequence[Verdict], runs: Sequence[Run]) -> list[str]:
    """Why numbers of these runs are not certain, in the sentence's words."""
    mine = {run.name for run in runs if run.state == "counts"}
    return list(dict.fromkeys(DOUBTS[each.name] for each in found if each.name in DOUBTS and mine.intersection(each.runs)))


def verdict_rows(found: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Verdicts as report.json has them."""
    changed = ({"numbers": dict(each.numbers), "runs": list(each.runs)} for each in found)
    rows = [{**vars(each), **plain} for each, plain in zip(found, changed, strict=True)]
    return [{name: value for name, value in row.items() if name != "todo"} for row in rows]


def verdict_lines(found: Sequence[Verdict], width: int = WIDE) -> list[str]:
    """Verdicts as the terminal shows them: each with its evidence, then its advice, which is shown once where several in a row
    have the same."""
    names = dict.fromkeys(verdict.name for verdict in found)
    of_name = {name: [verdict for verdict in found if verdict.name == name] for name in names}
    shown = [verdict for alike in of_name.values() for verdict in alike[:OF_A_KIND]]
    lines = []
    for verdict, after in zip(shown, [*shown[1:], None], strict=False):
        lines += _wrapped(f"{verdict.name} {verdict.where}: {verdict.evidence}", "  VERDICT  ", width)
        left = len(of_name[verdict.name]) - OF_A_KIND
        if left > 0 and (after is None or after.name != verdict.name):
            lines.append(f"{MARGIN}and {left} more of this name: see report.json")
        if after is None or after.advice != verdict.advice:
            lines += _wrapped(verdict.advice, MARGIN, width)
    return lines


def _wrapped(text: str, before: str, width: int) -> list[str]:
    """Lines of at most `width`; text between backticks is not broken, so that it can be copied."""
    pieces = text.split("`")
    glued = "`".join(piece.replace(" ", "\0") if index % 2 else piece for index, piece in enumerate(pieces))
    lines = textwrap.wrap(glued, width - len(before), break_long_words=False, break_on_hyphens=False)
    return [f"{before if index == 0 else ' ' * len(before)}{line}".replace("\0", " ") for index, line in enumerate(lines)]
