"""From runs to points: medians with their interval, speedup and efficiency against one GPU and against one full node."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import pandas as pd

from hpcddp.analysis.frames import RUN_COLUMNS
from hpcddp.analysis.series import order, same_workload
from hpcddp.analysis.steps import throughput_per_s, unaccounted
from hpcddp.point import Point
from hpcddp.records import PARTS

PER_POINT = ("label", "series", "nodes", "gpus_per_node", "ranks", "batch_per_gpu", "global_batch")
ALSO = ("device", "work", "node_type", "gpu", "env_id")

SCALING_COLUMNS = {
    **{name: RUN_COLUMNS[name] for name in (*PER_POINT, *ALSO)},
    "n": "Int64",
    "samples_per_s": "Float64",
    "samples_per_s_low": "Float64",
    "samples_per_s_high": "Float64",
    "interval": "string",
    "step_s": "Float64",
    "full_node_gpus": "Int64",
    "speedup_1gpu": "Float64",
    "efficiency_1gpu": "Float64",
    "speedup_1node": "Float64",
    "efficiency_1node": "Float64",
    **{f"{part}_s": "Float64" for part in PARTS},
    "unaccounted_s": "Float64",
}
"""One row per point and series. `interval` says what low and high are: `95 %`, `range`, or NA for a single run."""

CONFIDENCE = 0.95


def scaling_frame(runs: pd.DataFrame, planned: Sequence[Point], hold: str) -> pd.DataFrame:
    """Points of the runs that count, larger series first, within a series by GPUs and nodes."""
    counting = runs[runs["state"] == "counts"]
    rows = [_point_row(group) for _, group in counting.groupby(["series", "label"], sort=True)]
    series: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        series.setdefault(row["series"], []).append(row)
    for key, members in series.items():
        node = full_node_gpus(members, [point for point in planned if same_workload(key, point, hold)])
        for row in members:
            row.update(_against(row, members, node))
        members.sort(key=lambda row: (row["ranks"], row["nodes"]))
    ordered = _ordered(series)
    flat = [row for key in ordered for row in series[key]]
    return pd.DataFrame(flat, columns=list(SCALING_COLUMNS)).astype(SCALING_COLUMNS)


def _ordered(series: Mapping[str, Sequence[dict[str, Any]]]) -> list[str]:
    """Keys of series, most points first, then largest; equals by how they differ from the first of all."""
    extent = {key: (-len(members), -members[-1]["ranks"]) for key, members in series.items()}
    first = min(series, key=lambda key: (extent[key], order(key, key)), default="")
    return sorted(series, key=lambda key: (extent[key], order(key, first)))


def full_node_gpus(members: Sequence[dict[str, Any]], planned: Sequence[Point]) -> int:
    """GPUs of a full node: the most per node among the series' points, measured or planned."""
    return max([int(row["gpus_per_node"]) for row in members] + [point.layout.gpus_per_node for point in planned])


def _point_row(runs: pd.DataFrame) -> dict[str, Any]:
    """A point's row; `rate` is its median throughput as an exact fraction, for ratios."""
    rates = [throughput_per_s(int(batch), float(step)) for batch, step in zip(runs["global_batch"], runs["step_ns"], strict=True)]
    low, high, interval = spread(rates)
    step_s = float(runs["step_ns"].median()) / 1e9
    parts = {f"{part}_s": _median(runs[f"{part}_s"]) for part in PARTS}
    return {
        **{name: runs[name].iloc[0] for name in (*PER_POINT, *ALSO)},
        **parts,
        "n": len(runs),
        "rate": statistics.median(rates),
        "samples_per_s": float(statistics.median(rates)),
        "samples_per_s_low": low,
        "samples_per_s_high": high,
        "interval": interval,
        "step_s": step_s,
        "unaccounted_s": unaccounted(step_s, parts.values()),
    }


def _against(row: dict[str, Any], members: Sequence[dict[str, Any]], node_gpus: int) -> dict[str, Any]:
    """Speedup and efficiency of a row against both baselines; left out where the baseline is missing or larger than the point."""
    found: dict[str, Any] = {"full_node_gpus": node_gpus}
    for name, gpus in (("1gpu", 1), ("1node", node_gpus)):
        for base in members:
            if (base["nodes"], base["gpus_per_node"]) == (1, gpus) and row["ranks"] >= gpus:
                found[f"speedup_{name}"] = float(speedup(row["rate"], base["rate"]))
                found[f"efficiency_{name}"] = float(efficiency(row["rate"], row["ranks"], base["rate"], gpus))
    return found


def speedup(rate: Fraction, base_rate: Fraction) -> Fraction:
    """How many times the baseline's throughput."""
    return rate / base_rate


def efficiency(rate: Fraction, gpus: int, base_rate: Fraction, base_gpus: int) -> Fraction:
    """Throughput per GPU relative to the baseline's: speedup / (gpus / base_gpus); 1 is perfect scaling."""
    return speedup(rate, base_rate) * base_gpus / gpus


def spread(values: Sequence[Fraction]) -> tuple[float | None, float | None, str | None]:
    """Low, high and what they are: the 95 % interval of the median from six values on, their range below, nothing for one."""
    if len(values) < 2:
        return None, None, None
    ordered = sorted(values)
    rank = interval_rank(len(values))
    if rank is None:
        return float(ordered[0]), float(ordered[-1]), "range"
    return float(ordered[rank - 1]), float(ordered[-rank]), "95 %"


def interval_rank(n: int) -> int | None:
    """The k for which the k-th smallest and k-th largest of n values hold the median with at least 95 % confidence.

    Exact and free of assumptions on the distribution: each value lies below the median with probability 1/2, so the
    interval misses it with probability 2 P(Binomial(n, 1/2) < k): the interval that belongs to the sign test. None below
    six values: the whole range of five holds the median with 93.75 %, of six with 96.9 %.
    """
    missed, rank = 0.0, 0
    while rank < n and (missed := missed + 2 * math.comb(n, rank) / 2**n) <= 1 - CONFIDENCE:
        rank += 1
    return rank or None


def _median(values: pd.Series[Any]) -> float | None:
    measured = values.dropna()
    return float(measured.median()) if len(measured) else None
