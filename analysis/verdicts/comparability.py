"""What a study compares with: baselines that are noisy or missing, other hardware."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pandas as pd

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.series import key_text
from hpcddp.analysis.util.wording import percent, quantity, unit, units
from hpcddp.analysis.verdicts.context import (
    AGAIN,
    DOUBTFUL,
    INCOMPLETE,
    Case,
    PointRow,
    Verdict,
    layout,
    listed,
    run_names,
    run_numbers,
    where,
)
from hpcddp.core.repetitions import FEWEST
from hpcddp.core.text import count

NOISY_FROM = 0.05
"""Width of a baseline's interval or range as a share of its median: six runs that differ by 1 % (standard deviation) stay
below."""

NOISY_ALWAYS = 0.20
"""Width from which on a baseline is noisy in any case: a speedup of 7 may then be one of 6 or 8."""


def noisy_baseline(case: Case) -> Iterator[Verdict]:
    """The runs of a baseline differ by more than what is claimed against it."""
    for name, series in case.series:
        node = int(series["full_node_gpus"].iloc[0])
        for gpus, column in ({1: "efficiency_1gpu"} | {node: "efficiency_1node"}).items():  # the full node may be one GPU
            others = series[(series["gpus"] > gpus) & series[column].notna()]
            base = series[(series["nodes"] == 1) & (series["gpus_per_node"] == gpus)]
            if others.empty or base.empty or pd.isna(base["interval"].iloc[0]):
                continue
            row, effect = base.iloc[0], float((1 - others[column]).abs().max())
            width = float((row["samples_per_s_high"] - row["samples_per_s_low"]) / row["samples_per_s"])
            if width <= NOISY_FROM or width <= min(effect, NOISY_ALWAYS):
                continue
            runs = case.runs_of(row)
            claimed = f"the points are within {percent(effect)} of perfect scaling" if width > effect else "speedups follow it"
            yield Verdict(
                name="noisy baseline",
                where=where([row], series, name),
                evidence=f"{row['n']} runs give {_range(row['samples_per_s_low'], row['samples_per_s_high'])} samples/s "
                f"({row['interval']}), {percent(width)} of the median; {claimed} ({run_numbers(runs)})",
                advice=_more_runs(int(row["n"])),
                numbers={"width": width, "effect": effect, "n": int(row["n"])},
                runs=run_names(runs),
                weight=DOUBTFUL + min(0.99, width),
            )


def _range(low: float, high: float) -> str:
    return f"{quantity(low)} to {quantity(high)}"


def _more_runs(n: int) -> str:
    more = FEWEST if n < FEWEST else 2 * n
    return f"`--set repeat={more}`, on nodes that nobody shares; outliers.csv names runs far from the others"


def mixed_hardware(case: Case) -> Iterator[Verdict]:
    """One workload met several GPU types, though nobody asked for them: its points are not comparable with each other."""
    counting = case.table[(case.table["state"] == "counts") & case.table["gpu"].notna()]
    for _, rows in counting.groupby(counting["series"].map(_whatever_gpu), sort=True):
        kinds = sorted(set(rows["gpu"]))
        if len(kinds) == 1 and " + " not in kinds[0]:
            continue
        met = "; ".join(f"{kind}: {listed(_layouts(rows[rows['gpu'] == kind]))}" for kind in kinds)
        names = [f"r{row['run']} of {row['label']}" for _, row in rows.iterrows()]
        inside = any(" + " in kind for kind in kinds)
        why = "a job on several types is as slow as the slowest" if inside else "they are never pooled or compared"
        yield Verdict(
            name="mixed hardware",
            where=f"on {listed(kinds)}",
            evidence=f"runs of one workload met {met}; {why}",
            advice="ask for one: `--set layout.node_type=NAME` (`hpcddp clusters show` lists them), and submit what is missing",
            numbers={"kinds": len(kinds)},
            runs=tuple(names),
            weight=DOUBTFUL + 0.5,
        )


def _whatever_gpu(series: str) -> str:
    return key_text({name: value for name, value in json.loads(series).items() if name != "gpu"})


def _layouts(rows: pd.DataFrame) -> list[str]:
    ordered = rows.sort_values(["gpus", "nodes"], kind="stable")
    return list(dict.fromkeys(layout(row) for _, row in ordered.iterrows()))


def baseline_missing(case: Case) -> Iterator[Verdict]:
    """A series that has no point on one GPU, or none on one full node, to compare with."""
    for name, series in case.several:
        row = series.iloc[0]
        node, gpu = int(row["full_node_gpus"]), unit(row["device"])
        wanted = {1: f"one {gpu}"} | ({node: f"one full node ({units(node, row['device'])})"} if node > 1 else {})
        for gpus, what in wanted.items():
            if not ((series["nodes"] == 1) & (series["gpus_per_node"] == gpus)).any():
                yield _missing(case, row, gpus, what, name)


def _missing(case: Case, row: PointRow, gpus: int, what: str, name: str) -> Verdict:
    planned = [point.label for point in case.planned(row) if (point.layout.nodes, point.layout.gpus_per_node) == (1, gpus)]
    ended = [run for run in case.records.runs if run.label in planned and run.state != "missing"]
    if not planned:
        why = "the sweep has no such point"
        advice = f"add the point to the sweep: `baseline: {{layout.nodes: [1], layout.gpus_per_node: [{gpus}]}}` under `points`"
    elif not ended:
        why = f"{planned[0]} has no run that counts"
        advice = "`hpcddp submit` the sweep again: it runs what is missing"
    else:
        why, advice = _not_counted(ended)
    return Verdict(
        name="baseline missing",
        where=f"at 1x{gpus}{f' ({name})' if name else ''}",
        evidence=f"there is no speedup or efficiency against {what}: {why}",
        advice=advice,
        numbers={"gpus": gpus},
        runs=run_names(ended),
        weight=INCOMPLETE + (0.5 if planned else 0.1),
    )


def _not_counted(ended: Sequence[Run]) -> tuple[str, str]:
    """Why runs of a baseline that ended do not serve as a baseline, and what to do: `hpcddp submit` does not run them again by
    itself."""
    rejected = [run for run in ended if run.state == "rejected"]
    if not rejected:
        return f"{ended[0].name} met another GPU or environment than the other points", f"have the same for all: {AGAIN}"
    more = f" (and {count(len(rejected) - 1, 'more run')})" if len(rejected) > 1 else ""
    return f"{rejected[0].name} was rejected{more}: {rejected[0].reason}", f"mend what rejected them, then {AGAIN}"
