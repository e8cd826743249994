"""Readings of points: medians over the runs that throughput comes from, beside the wait for data, and where they mislead."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from hpcddp.analysis.runs.resources import FIGURES
from hpcddp.analysis.study.frames import energy_kwh, typed_frame
from hpcddp.analysis.study.scaling import by_point, timed_runs
from hpcddp.analysis.study.series import Apart, key_text, words
from hpcddp.analysis.util.wording import percent

BUSY_PERCENT = 80.0
"""GPU utilisation from which on a reader takes a GPU for busy."""

IDLE_PERCENT = 50.0
"""Utilisation below which a reader looks for what the GPU waits for."""

WAITS = 0.10
"""Share of the step that is a wait worth naming, as context.INPUT_SHARE has it."""

FAR_FROM_PEAK = 0.10
"""Share of the GPU's peak below which a busy GPU is named as slow; a convention."""

PLACE = {
    "label": "string",
    "series": "string",
    "nodes": "Int64",
    "gpus_per_node": "Int64",
    "gpus": "Int64",
    "device": "string",
}
POINT = PLACE | {"n": "Int64"}

ACHIEVED = ("flops_per_s_per_gpu", "share_of_peak", "energy_j_per_1000_samples")
"""Columns of runs_frame that stand beside them."""

BESIDE = {
    **dict.fromkeys(("data_wait_share", "comm_exposed_share", *ACHIEVED), "Float64"),
    **dict.fromkeys(("gpu_kwh_per_epoch", "node_kwh_per_epoch", "gpu_co2_g_per_epoch", "node_co2_g_per_epoch"), "Float64"),
}
"""Shares are of the step; CO2 is known where the user says how much a kWh costs (`with_co2`)."""

READING_COLUMNS = {**POINT, **FIGURES, **BESIDE, "misleads": "string"}
"""A row per point. Medians over its timed runs, means of what an epoch takes (kWh, CO2); of peaks the highest and of `_least` the
lowest of any run; words are those of the runs, each once. `misleads` says what the utilisation hides."""


def readings_frame(points: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """For rows of scaling_frame, in their order; `runs` of runs_frame."""
    timed = {key: timed_runs(members) for key, members in by_point(runs)}
    keyed = ((row, (row["series"], row["nodes"], row["gpus_per_node"])) for _, row in points.iterrows())
    return typed_frame((_row(row, timed[key]) for row, key in keyed), READING_COLUMNS)


def with_co2(readings: pd.DataFrame, g_per_kwh: float | None) -> pd.DataFrame:
    """The table with grams of CO2 of an epoch's energy, by the user's own factor; unchanged without one."""
    if g_per_kwh is None:
        return readings
    return readings.assign(**{f"{of}_co2_g_per_epoch": readings[f"{of}_kwh_per_epoch"] * g_per_kwh for of in ("gpu", "node")})


def any_read(readings: pd.DataFrame) -> bool:
    """Whether any point has any reading of a GPU or node."""
    columns = ["gpu_util_percent", "gpu_power_w_mean", "cpu_busy_share", "host_mem_used_peak_bytes"]
    return bool(readings[columns].notna().any(axis=None))


def reading_notes(readings: pd.DataFrame) -> Iterator[str]:
    """What the utilisation hides, points with the same together."""
    for text, rows in readings.dropna(subset=["misleads"]).groupby("misleads", sort=False):
        sizes = ", ".join(f"{row['nodes']}x{row['gpus_per_node']}" for _, row in rows.iterrows())
        yield f"GPU utilisation at {sizes} is misleading. {text}"


def _row(row: pd.Series[Any], runs: pd.DataFrame) -> dict[str, Any]:
    step_s = row["step_s"] if pd.isna(row["step_hook_s"]) else row["step_hook_s"]
    found = {
        **{name: row[name] for name in POINT},
        **over_runs(runs),
        "data_wait_share": row["data_wait_s"] / step_s,
        "comm_exposed_share": row["comm_exposed_s"] / step_s,
        "gpu_kwh_per_epoch": row["gpu_kwh_per_epoch"],
    }
    joules, samples = runs["node_energy_j_per_1000_samples"].mean(), row["epoch_samples"]
    found["node_kwh_per_epoch"] = None if pd.isna(joules) or pd.isna(samples) else energy_kwh(int(samples), joules)
    return found | {"misleads": misleading(found)}


def over_runs(runs: pd.DataFrame) -> dict[str, float | str | None]:
    """FIGURES and ACHIEVED over rows of runs_frame, as READING_COLUMNS says; None where no run has it."""
    return {name: _over_runs(name, runs[name].dropna()) for name in (*FIGURES, *ACHIEVED)}


def _over_runs(name: str, known: pd.Series[Any]) -> float | str | None:
    if not len(known):
        return None
    if FIGURES.get(name) == "string":
        return "; ".join(dict.fromkeys(known))
    peak, least = "_peak" in name and name not in ACHIEVED, name.endswith("_least")
    return float(known.max() if peak else known.min() if least else known.median())


def misleading(row: dict[str, Any]) -> str | None:
    """What the GPU's utilisation hides: it counts time in which any kernel ran, however small, and NCCL's run while they wait."""
    util = row["gpu_util_percent"]
    shares = (row[name] for name in ("data_wait_share", "comm_exposed_share", "share_of_peak"))
    waits, exchanges, peak = (None if pd.isna(share) else float(share) for share in shares)
    if util is None or waits is None:
        return None
    if util >= BUSY_PERCENT:
        hidden = [
            f" Ranks wait for data during {percent(waits)} of the step." if waits >= WAITS else "",
            f" Collectives take {percent(exchanges)}, and their kernels run while they wait."
            if exchanges and exchanges >= WAITS
            else "",
            f" The rate is {percent(peak)} of the GPU's peak." if peak is not None and peak < FAR_FROM_PEAK else "",
        ]
        return f"A kernel ran in {util:.0f} % of the time.{''.join(hidden)}" if any(hidden) else None
    if util < IDLE_PERCENT and waits < WAITS:
        return (
            f"No kernel ran in {100 - util:.0f} % of the time, but ranks wait for data during {percent(waits)} of the step only. "
            f"Check for steps too short to launch, exchange through the host, and pauses between steps."
        )
    return None


INPUTS = ("full", "synthetic", "io")

LAYOUT = {"series": "string", "nodes": "Int64", "gpus_per_node": "Int64", "device": "string"}
LIMITS_COLUMNS = {**LAYOUT, **dict.fromkeys(INPUTS, "Float64")}
"""Samples per second by `measure.input`; NA where no run counts."""


def limits_frame(scaling: pd.DataFrame, apart: Apart) -> pd.DataFrame:
    """A row per layout that was measured with `synthetic` or `io` input, too; none where a study has one kind of input only."""
    rows = []
    several = scaling["input"].nunique() > 1
    for _, points in _alike(scaling):
        if several and (points["input"] != "full").any():
            others = {name: value for name, value in apart[points["series"].iloc[0]].items() if name != "input"}
            rows.append({**points.iloc[0][list(LAYOUT)], "series": words(others), **_rates(points)})
    return typed_frame(rows, LIMITS_COLUMNS)


Rates = dict[tuple[str, int, int], dict[str, float]]
"""(Series as `whatever_input` has it, nodes, GPUs per node) -> samples per second by `measure.input`."""


def rates_by_input(scaling: pd.DataFrame) -> Rates:
    """Of all layouts."""
    return {key: _rates(points) for key, points in _alike(scaling)}


def whatever_input(series: str) -> str:
    """The key that a series shares with those that differ from it only in `measure.input`."""
    return key_text({name: value for name, value in json.loads(series).items() if name != "measure.input"})


def _alike(scaling: pd.DataFrame) -> Iterable[tuple[Any, pd.DataFrame]]:
    return scaling.groupby([scaling["series"].map(whatever_input), "nodes", "gpus_per_node"], sort=False)


def _rates(points: pd.DataFrame) -> dict[str, float]:
    return dict(zip(points["input"], points["samples_per_s"], strict=True))
