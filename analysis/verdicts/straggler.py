"""Straggler: a host, or on one node a rank, that the others wait for."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from hpcddp.analysis.verdicts.case import AGAIN, LIMITED, Case, Row, Verdict
from hpcddp.analysis.wording import percent, quantity
from hpcddp.textout import count

OFTEN_LAST = 0.8
COSTLY = 0.02
"""A straggler is the last rank at more than this share of all-reduces, and costs more than this share of the step."""


def straggler(case: Case) -> Iterator[Verdict]:
    """A host, or on one node a rank, that the others wait for in runs that count."""
    counting = case.table.loc[case.table["state"] == "counts", ["label", "run", "step_ns", "nodes"]]
    ranks = case.stragglers.merge(counting, on=["label", "run"])
    found = [who for _, run in ranks.groupby(["label", "run"], sort=True) if (who := culprit(run))]
    for name in sorted({each["who"] for each in found}):
        mine = sorted((each for each in found if each["who"] == name), key=lambda each: -each["cost"])
        worst, told = mine[0], tuple(f"r{each['run']} of {each['label']}" for each in mine)
        more = f", and in {count(len(told) - 1, 'more run')}" if len(told) > 1 else ""
        yield Verdict(
            name="straggler",
            where=f"on {name}",
            evidence=f"it was the last to be ready at {percent(worst['last'])} of the all-reduces of {told[0]}{more}: the others "
            f"waited {quantity(worst['wait_s'] * 1e3)} ms per step for it ({percent(worst['cost'])} of the step)",
            advice=_straggler_advice(worst),
            numbers={key: float(worst[key]) for key in ("last", "wait_s", "cost")} | {"found_in_runs": len(told)},
            runs=told,
            weight=LIMITED + min(0.99, worst["cost"]),
        )


def waited_share(case: Case, row: Row) -> float | None:
    """Of a point's step, what the others wait for a straggler: the median over its runs, so that one bad run is no cause.

    None where that costs too little to tell.
    """
    mine = {(run.label, run.run): run.step_ns for run in case.runs_of(row)}
    of_runs = [
        (culprit(ranks.assign(step_ns=mine[key], nodes=row["nodes"])) or {"cost": 0.0})["cost"]
        for key, ranks in case.stragglers.groupby(["label", "run"], sort=True)
        if key in mine
    ]
    share = statistics.median(of_runs) if of_runs else 0.0
    return share if share > COSTLY else None


def culprit(ranks: pd.DataFrame) -> dict[str, Any] | None:
    """Of one run: the rank, otherwise the host, that is last at nearly every all-reduce and costs something.

    Nobody waits for a rank that is alone.
    """
    if len(ranks) < 2:
        return None
    first = ranks.iloc[0]
    number, at, last_at = (ranks[name].to_numpy() for name in ("rank", "host", "last"))
    hosts = sorted(set(at)) if len(set(at)) > 1 else []
    by_rank = ((f"rank {rank} on {host}", number == rank) for rank, host in zip(number, at, strict=True))
    for who, mine in itertools.chain(by_rank, ((host, at == host) for host in hosts)):
        if last_at[mine].sum() <= OFTEN_LAST:
            continue
        last, wait_s = min(1.0, float(ranks.loc[mine, "last"].sum())), float(ranks.loc[~mine, "peer_wait_s"].mean())
        cost = wait_s * 1e9 / first["step_ns"]
        if last > OFTEN_LAST and cost > COSTLY:
            host = str(ranks.loc[mine, "host"].iloc[0])
            return {"who": who, "host": host, "nodes": first["nodes"], "last": last, "wait_s": wait_s, "cost": float(cost)} | {
                name: first[name] for name in ("label", "run")
            }
    return None


def _straggler_advice(worst: Mapping[str, Any]) -> str:
    if worst["nodes"] > 1:
        return f"show the site stragglers.csv, and leave it out, `--set slurm.exclude={worst['host']}`; then {AGAIN}"
    return "compare that rank's GPU and cores with the others' (clocks, temperature, NUMA node, other processes)"
