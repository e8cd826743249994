"""From runs to points: medians with their interval, speedup and efficiency against one GPU and against one full node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from statistics import median
from typing import Any

import pandas as pd

from hpcddp.analysis.records.rows import RECORDED
from hpcddp.analysis.records.steps import throughput_per_s, unaccounted
from hpcddp.analysis.runs.communication import algorithm_bandwidth, bus_bandwidth, overlap_share
from hpcddp.analysis.runs.step_times import TO_DEVIATION
from hpcddp.analysis.study.accuracy import ACCURACY_COLUMNS, BASES, point_accuracy
from hpcddp.analysis.study.effects import Ratio, interval_rank, ratio, spread
from hpcddp.analysis.study.frames import COST_COLUMNS, EXCHANGE, RUN_COLUMNS, TOKENS_PER_S, TYPICAL, costs, typed_frame
from hpcddp.analysis.study.series import same_workload, series_order
from hpcddp.core.point import Point
from hpcddp.core.prediction import PredictedPoint
from hpcddp.core.records import PARTS
from hpcddp.core.text import natural

PER_POINT = ("series", "nodes", "gpus_per_node", "gpus", "ranks", "batch_per_gpu", "global_batch")
ALSO = ("device", "work", "input", "node_type", "gpu", "env_id")

EXCHANGED = dict.fromkeys(("comm_overlap", "step_bytes", "algbw_bytes_per_s", "busbw_bytes_per_s"), "Float64")

BREAKDOWN_COLUMNS = {
    "breakdown_label": "string",
    "breakdown_n": "Int64",
    "step_s": "Float64",
    "step_hook_s": "Float64",
    **{f"{name}_s": "Float64" for name in (*PARTS, "unaccounted", *EXCHANGE, "h2d_hidden")},
    **EXCHANGED,
}
"""Where the step goes, from runs with the communication hook where there are any: parts add up to step_hook_s then, otherwise
to step_s; `unaccounted_s` is what records that lack a part leave of it. Transfer and peer wait are comm_exposed split up; what is
hidden is outside the sum."""

AGAINST = dict.fromkeys(("speedup_{}", "efficiency_{}", "efficiency_{}_low", "efficiency_{}_high"), "Float64")

PREDICTED = {
    **dict.fromkeys(("predicted_samples_per_s", "predicted_low", "predicted_high"), "Float64"),
    "predicted_from": "string",
}
"""By prediction.json; a report without a prediction is without them."""

SCALING_COLUMNS = {
    "label": "string",
    **{name: RUN_COLUMNS[name] for name in (*PER_POINT, *ALSO)},
    "hook": "boolean",
    "n": "Int64",
    "samples_per_s": "Float64",
    "samples_per_s_low": "Float64",
    "samples_per_s_high": "Float64",
    "interval": "string",
    "full_node_gpus": "Int64",
    **{name.format(base): kind for base in BASES for name, kind in {**AGAINST, "efficiency_{}_interval": "string"}.items()},
    **COST_COLUMNS,
    **{f"step_{name}_s": "Float64" for name in TYPICAL},
    **BREAKDOWN_COLUMNS,
    **ACCURACY_COLUMNS,
    TOKENS_PER_S: "Float64",
    **PREDICTED,
}
"""One row per layout and series; values are medians over runs. Throughput comes from runs without the communication hook, or
from runs with it where `hook` is true. `interval` says what low and high are: `95 %`, `range`, or NA for a single run. The
interval of an efficiency includes the spread of both medians; the baseline's own efficiency has none."""


def scaling_frame(
    runs: pd.DataFrame, planned: Sequence[Point], hold: str, predicted: Mapping[str, PredictedPoint] = {}
) -> pd.DataFrame:
    """The scaling table: points that have runs that count, larger series first, within a series by GPUs and nodes."""
    series: dict[str, list[dict[str, Any]]] = {}
    for row in (_point_row(group) for _, group in by_point(runs)):
        series.setdefault(row["series"], []).append(row)
    for key, members in series.items():
        node = full_node_gpus(members, [point for point in planned if same_workload(key, point, hold)])
        for row in members:
            row.update(_against(row, members, node))
            if found := predicted.get(row["label"]):
                row.update(zip(PREDICTED, (found.samples_per_s, found.low, found.high, found.anchor), strict=True))
        members.sort(key=lambda row: (row["gpus"], row["nodes"]))
    return typed_frame((row for key in _ordered(series) for row in series[key]), SCALING_COLUMNS)


def by_point(runs: pd.DataFrame) -> Iterable[tuple[Any, pd.DataFrame]]:
    """For each (series, nodes, GPUs per node) the timed runs that count."""
    counting = runs[(runs["state"] == "counts") & runs["step_ns"].notna()]
    return counting.groupby(["series", "nodes", "gpus_per_node"], sort=True)


def timed_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of a point that its throughput comes from: those without the communication hook, or all where each has it."""
    plain = runs[~runs["hook"].astype(bool)]
    return plain if len(plain) else runs


def point_ratios(runs: pd.DataFrame) -> dict[Any, list[float]]:
    """(series, nodes, GPUs per node) -> the throughput of each timed run by the median of all."""
    rates = {point: rates_per_s(timed_runs(group)) for point, group in by_point(runs)}
    return {point: [float(rate / median(found)) for rate in found] for point, found in rates.items()}


def rates_per_s(timed: pd.DataFrame) -> list[Fraction]:
    """Samples per second of each run."""
    rows = timed[["steady_samples", "timed_ns", "ranks"]].itertuples(index=False, name=None)
    return [throughput_per_s(int(samples), Fraction(int(ns), int(ranks))) for samples, ns, ranks in rows]


def _ordered(series: Mapping[str, Sequence[dict[str, Any]]]) -> list[str]:
    """Series with most points first, then the largest, then those of most runs, then by how they differ from the first of all."""
    extent = {key: (-len(of), -of[-1]["gpus"], -sum(row["n"] for row in of)) for key, of in series.items()}
    first = min(series, key=lambda key: (extent[key], series_order(key, key)), default="")
    return sorted(series, key=lambda key: (extent[key], series_order(key, first)))


def full_node_gpus(members: Sequence[dict[str, Any]], planned: Sequence[Point]) -> int:
    """GPUs of a full node: the most per node among the series' points, measured or planned."""
    return max([int(row["gpus_per_node"]) for row in members] + [point.layout.gpus_per_node for point in planned])


def _point_row(runs: pd.DataFrame) -> dict[str, Any]:
    """The row of a layout; `rates` are the throughputs of its runs and `rate` is their median, exact fractions for ratios."""
    with_hook = runs["hook"].astype(bool)
    plain, hooked = runs[~with_hook], runs[with_hook]
    timed = timed_runs(runs)
    rates = rates_per_s(timed)
    low, high, interval = spread(rates)
    row = {
        **{name: runs[name].iloc[0] for name in (*PER_POINT, *ALSO)},
        "label": _labels(timed),
        "hook": not len(plain),
        "n": len(timed),
        "rates": rates,
        "rate": median(rates),
        "samples_per_s": float(median(rates)),
        "samples_per_s_low": low,
        "samples_per_s_high": high,
        "interval": interval,
        TOKENS_PER_S: None if timed[TOKENS_PER_S].isna().any() else float(timed[TOKENS_PER_S].median()),
        "step_s": _step_s(timed),
        "step_hook_s": _step_s(hooked) if len(hooked) else None,
        **{f"step_{name}_s": timed[f"step_{name}_s"].median() for name in TYPICAL},
        **_breakdown(hooked if len(hooked) else plain),
    }
    return row | costs(row, timed) | point_accuracy(runs)


def _breakdown(runs: pd.DataFrame) -> dict[str, Any]:
    """Means over the run whose step is the median, or over the two runs whose mean step is."""
    middle = runs.sort_values("step_ns", kind="stable").iloc[(len(runs) - 1) // 2 : len(runs) // 2 + 1]
    found = {f"{name}_s": _mean(middle[f"{name}_s"]) for name in (*RECORDED, *EXCHANGE)}
    exposed = ["comm_exposed_s"] if found["transfer_s"] is None else ["transfer_s", "peer_wait_s"]
    parts = [found[name] for name in (*(f"{part}_s" for part in PARTS if part != "comm_exposed"), *exposed)]
    return {
        "breakdown_label": _labels(runs),
        "breakdown_n": len(runs),
        **found,
        "unaccounted_s": unaccounted(_step_s(runs), parts),
        **_bandwidths(_mean(middle["step_bytes"]), found, int(runs["ranks"].iloc[0])),
    }


def _bandwidths(step_bytes: float | None, found: Mapping[str, float | None], ranks: int) -> dict[str, float | None]:
    busy_s, hidden_s = found["comm_busy_s"], found["comm_hidden_s"]
    if step_bytes is None or busy_s is None or hidden_s is None:
        return dict.fromkeys(EXCHANGED) | {"step_bytes": step_bytes}
    algorithm = algorithm_bandwidth(step_bytes, busy_s)
    return {
        "comm_overlap": overlap_share(hidden_s, busy_s),
        "step_bytes": step_bytes,
        "algbw_bytes_per_s": algorithm,
        "busbw_bytes_per_s": bus_bandwidth(algorithm, ranks),
    }


def _labels(runs: pd.DataFrame) -> str:
    return " + ".join(sorted(set(runs["label"]), key=natural))


def _step_s(runs: pd.DataFrame) -> float:
    return float(runs["step_ns"].median()) / 1e9


def _against(row: dict[str, Any], members: Sequence[dict[str, Any]], node_gpus: int) -> dict[str, Any]:
    found: dict[str, Any] = {"full_node_gpus": node_gpus}
    for name, gpus in zip(BASES, (1, node_gpus), strict=True):
        for base in members:
            if (base["nodes"], base["gpus_per_node"]) == (1, gpus) and row["gpus"] >= gpus:
                found |= _against_base(name, row, base)
    return found


def _against_base(name: str, row: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """A baseline against itself is 1 exactly: it has no interval."""
    share = f"efficiency_{name}"
    found = {
        f"speedup_{name}": float(speedup(row["rate"], base["rate"])),
        share: float(efficiency(row["rate"], row["gpus"], base["rate"], base["gpus"])),
    }
    if row is base:
        return found
    ends = efficiency_of_runs(row["rates"], row["gpus"], base["rates"], base["gpus"])
    return found | {f"{share}_low": ends.low, f"{share}_high": ends.high, f"{share}_interval": ends.kind}


def efficiency_of_runs(rates: Sequence[Fraction], gpus: int, base_rates: Sequence[Fraction], base_gpus: int) -> Ratio:
    """Efficiency of medians over runs with its interval: both medians vary, so effects.ratio resamples the runs of both."""
    return ratio([rate / gpus for rate in rates], [rate / base_gpus for rate in base_rates])


def speedup(rate: Fraction, base_rate: Fraction) -> Fraction:
    """Throughput / the baseline's throughput."""
    return rate / base_rate


def efficiency(rate: Fraction, gpus: int, base_rate: Fraction, base_gpus: int) -> Fraction:
    """Throughput per GPU relative to the baseline's: speedup / (gpus / base_gpus); 1 is perfect scaling."""
    return speedup(rate, base_rate) * base_gpus / gpus


def _mean(values: pd.Series[Any]) -> float | None:
    return None if values.isna().any() else float(values.mean())


FAR = 5
"""Scaled median absolute deviations. With 3, as is usual for large samples, one in five points of 6 to 20 clean runs had a run
to name in simulation, with 5 one in 15 (6 runs) to 80 (20); ten standard deviations are still found in 92 % of points of 6."""

SMALLEST = 0.02
"""Share of the median below which no difference is an outlier: nobody looks for its cause."""

OUTLIER_COLUMNS = {"label": "string", "run": "Int64", "series": "string", "percent": "Float64"}
"""`percent`: throughput above (below: negative) the median of the point's runs."""


def outliers(values: Sequence[float]) -> list[int]:
    """Indices of values more than FAR scaled median absolute deviations, and SMALLEST, off the median; none below six values."""
    if interval_rank(len(values)) is None:
        return []
    middle = median(values)
    off = [abs(value - middle) for value in values]
    least = max(FAR * TO_DEVIATION * median(off), SMALLEST * middle)
    return [index for index, each in enumerate(off) if each > least]


def outliers_frame(runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each run that counts and is far from the others of its point."""
    rows = []
    for _, group in by_point(runs):
        timed = timed_runs(group)
        rates = [float(rate) for rate in rates_per_s(timed)]
        for index in outliers(rates):
            percent = 100 * (rates[index] / median(rates) - 1)
            rows.append({**timed.iloc[index][["label", "run", "series"]], "percent": percent})
    return typed_frame(rows, OUTLIER_COLUMNS)


def outlier_notes(far: pd.DataFrame) -> Iterator[str]:
    """A sentence on the run that is farthest from the others of its point, and how many more there are."""
    if len(far):
        worst = far.iloc[int(far["percent"].abs().argmax())]
        direction = "slower" if worst["percent"] < 0 else "faster"
        others = f" With `--to csv`, outliers.csv has {len(far) - 1} more." if len(far) > 1 else ""
        yield (
            f"Run r{worst['run']} of {worst['label']} is an outlier, {abs(worst['percent']):.1f} % {direction} than its point's "
            f"median. It is still included. Find what was different in that run.{others}"
        )
