"""Uneven ranks: they wait for each other in turn, with none that is slow for good."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from statistics import NormalDist

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.verdicts.context import LIMITED, Case, PointRow, Verdict, found_points, run_numbers, span
from hpcddp.analysis.verdicts.input import input_share
from hpcddp.analysis.verdicts.settings import Advice, Set, phrase
from hpcddp.analysis.verdicts.slow_ranks import data_share, faster, slow_ranks

WAITING = 0.10
"""Share of the step that ranks may wait: 512 ranks whose steps jitter by 1.5 % each, a sound run, wait 5 % for the latest of
them."""

OF_NOISE = 0.06
"""Deviation of a rank's steps that is ordinary noise, as a share of the step: of 256 ranks the slowest one is then 17 % late,
which the sentence says, and no verdict."""

BY_DATA = 0.5
"""Share of that waiting: where steps would be shorter by more if no rank ever waited for data, loaders make ranks uneven."""


def uneven_ranks(case: Case) -> Iterator[Verdict]:
    """Ranks wait for each other, now for one and now for another."""
    for found in found_points(case, _beyond_noise):
        runs, shares = found.runs, found.values
        yield found.verdict(
            evidence=f"{span(shares)} of the step a rank waits for the slowest one of that step, which is now this one, now that "
            f"({run_numbers(runs)}); without that it would be {faster(max(shares))}",
            todo=_uneven_advice(_by_data(runs, min(shares))),
            numbers={"waiting_share_low": min(shares), "waiting_share_high": max(shares), "faster_by": 1 / (1 - max(shares)) - 1},
            runs=runs,
            weight=LIMITED + min(0.99, max(shares)),
        )


def _beyond_noise(case: Case, row: PointRow) -> float | None:
    """The slowest of n normal values is about that quantile of them (Blom 1958)."""
    share, n = uneven_share(case, row), int(row["ranks"])
    return share if share and share > OF_NOISE * NormalDist().inv_cdf((n - 0.375) / (n + 0.25)) else None


def uneven_share(case: Case, row: PointRow) -> float | None:
    """The share of a point's step that ranks wait for each other in turn, the median over its runs; None up to WAITING, where
    one rank is always slow, and where they wait for data and input-bound says so."""
    shares = [
        0.0 if slow_ranks(run.unevenness, run.step_ns) else run.unevenness.often_ns / run.step_ns
        for run in case.runs_of(row)
        if run.unevenness and run.step_ns
    ]
    share = statistics.median(shares) if shares else 0.0
    if share <= WAITING:
        return None
    is_input_bound = _by_data(case.runs_of(row), share) and input_share(case, row) is not None
    return None if is_input_bound else share


def _by_data(runs: Sequence[Run], share: float) -> bool:
    return statistics.median(data_share(run) or 0.0 for run in runs) > BY_DATA * share


def _uneven_advice(by_data: bool) -> Advice:
    if by_data:
        io = Set({"measure.input": "io"})
        return phrase("batches are late on one rank after the other: ", io, " times the loaders alone, and says what limits them")
    return phrase(
        "look for what disturbs ranks in turn: batches of unlike cost, garbage collection (",
        Set({"measure.gc": "frozen"}),
        "), cores that ranks share, other processes on the nodes; the figure of ranks shows who was slow when",
    )
