"""Runs as a table: one row per run, seconds and samples, unknown as NA; and what an epoch and a whole training cost."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from hpcddp.analysis.records.json_files import environment_names
from hpcddp.analysis.records.rows import RECORDED
from hpcddp.analysis.runs.communication import Communication
from hpcddp.analysis.runs.resources import FIGURES, figures, flops_per_s_per_gpu, share_of_peak
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.load import StudyRecords
from hpcddp.analysis.study.series import key_text, series_key
from hpcddp.core.point import Point

EXCHANGE = ("transfer", "peer_wait", "comm_hidden", "comm_busy")
"""What becomes of the exchange of gradients; transfer and peer_wait together are comm_exposed."""

TYPICAL = ("median", "p05", "p95", "p99")
"""Of a run's steps, as TypicalStep has them."""

ACCURACY_OF_RUN = {
    "evaluated": "boolean",
    "eval_loss": "Float64",
    "samples_trained": "Int64",
    "loss_start": "Float64",
    "loss_end": "Float64",
    "loss_steps": "Int64",
}
"""`evaluated`: its point says that it is. Losses are means over its first and last `loss_steps` steps and over ranks."""

TOKENS_PER_S = "tokens_per_s"
"""Column of what only some scripts of the user's own say: a report in which nobody did is without it."""

RUN_COLUMNS = {
    "label": "string",
    "run": "Int64",
    "attempt": "string",
    "started_unix_ns": "Int64",
    **dict.fromkeys(("state", "reason", "series"), "string"),
    **dict.fromkeys(("nodes", "gpus_per_node", "gpus", "ranks", "batch_per_gpu", "global_batch"), "Int64"),
    **dict.fromkeys(("device", "work", "node_type", "gpu", "env_id", "input"), "string"),
    "epoch_samples": "Int64",
    "pauses_s": "Float64",
    "hook": "boolean",
    "steady_steps": "Int64",
    "steady_samples": "Int64",
    "stopped_by": "string",
    "warmup_detected_steps": "Int64",
    "timed_ns": "Int64",
    "step_ns": "Float64",
    **{f"step_{name}_s": "Float64" for name in TYPICAL},
    "step_ci_percent": "Float64",
    "samples_per_s": "Float64",
    **{f"{name}_s": "Float64" for name in (*RECORDED, *EXCHANGE)},
    "step_bytes": "Float64",
    "clock_error_s": "Float64",
    "comm_check": "string",
    "comm_check_closes": "boolean",
    "arithmetic": "string",
    "flops_per_s_per_gpu": "Float64",
    "share_of_peak": "Float64",
    "peak_memory_bytes": "Int64",
    **dict.fromkeys(("energy_j_per_1000_samples", "loss_first", "loss_last"), "Float64"),
    "eval_samples": "Int64",
    "eval_correct": "Int64",
    **FIGURES,
    **ACCURACY_OF_RUN,
    TOKENS_PER_S: "Float64",
}
"""`series` is the text of the run's series key; `gpus` counts devices (with `device: cpu` what stands for them), `ranks`
processes; `timed_ns` is what the steady steps took, summed over ranks, and `step_ns` the mean over both; `hook`: gradients
went through hpcddp's communication hook, without which nothing of EXCHANGE is known; `flops_per_s_per_gpu` is what
the model needs for the samples, and `share_of_peak` that of the GPU's peak in `arithmetic`; FIGURES are telemetry's."""


def typed_frame(rows: Iterable[Any], columns: Mapping[str, str]) -> pd.DataFrame:
    """The rows as a table; `columns`: column -> pandas type. NA is what a row lacks."""
    return pd.DataFrame(list(rows), columns=list(columns)).astype(columns)


def runs_frame(records: StudyRecords) -> pd.DataFrame:
    """All runs, counting or not, by label and run number."""
    names = environment_names((run.env_id, run.software) for run in records.runs if run.env_id)
    return typed_frame((_row(run, records.hold, names.get(run.env_id)) for run in records.runs), RUN_COLUMNS)


def _row(run: Run, hold: str, environment: str | None) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(run, name) for name in RUN_COLUMNS if name in Run.__dataclass_fields__}
    if run.point is not None:
        layout, measure = run.point.layout, run.point.measure
        row |= {
            "series": key_text(series_key(run.point, hold, environment, run.gpu)) if run.state != "missing" else None,
            **{name: getattr(layout, name) for name in ("nodes", "gpus_per_node", "node_type")},
            **{name: getattr(run.point, name) for name in ("gpus", "ranks", "device", "work")},
            "batch_per_gpu": run.point.workload.batch_per_gpu,
            "input": measure.input,
            "evaluated": run.point.evaluates,
            "hook": measure.comm != "off" and not _without_hook(run.point),
        }
    row["started_unix_ns"] = run.signals.began_unix_ns if run.signals else None
    row |= {"epoch_samples": run.samples_per_epoch, "pauses_s": run.pauses_s}
    if run.losses is not None:
        row |= {"loss_start": run.losses.start, "loss_end": run.losses.end, "loss_steps": run.losses.steps}
    measured = _measured(run)
    read = figures(run.readings, run.fabric_gbps)
    return row | measured | _exchanged(run) | _achieved(run, measured.get("samples_per_s")) | read


def _without_hook(point: Point) -> bool:
    """A script's loop that exchanges without DDP, which a profiler watched."""
    return point.own_loop and point.ranks > 1 and point.workload.parallel == "none"


def _measured(run: Run) -> dict[str, float | None]:
    if run.rate_per_s is None or run.part_ns is None or run.typical is None:
        return {}
    parts = {f"{part}_s": None if value is None else value / 1e9 for part, value in run.part_ns.items()}
    typical = {f"step_{name}_s": getattr(run.typical, f"{name}_ns") / 1e9 for name in TYPICAL}
    return {"samples_per_s": float(run.rate_per_s), **typical, **parts}


def _exchanged(run: Run) -> dict[str, float | None]:
    found = run.exchange
    if found is None:
        return {}
    times = (*_split(run, found), found.hidden_ns, found.busy_ns)
    return {
        **{f"{name}_s": None if ns is None else ns / 1e9 for name, ns in zip(EXCHANGE, times, strict=True)},
        "step_bytes": found.step_bytes,
        "clock_error_s": None if found.clock_error_ns is None else found.clock_error_ns / 1e9,
    }


def _split(run: Run, found: Communication) -> tuple[float | None, float | None]:
    """Transfer and peer wait. Where all-reduces of some steps only were recorded, these say how exposed communication parts."""
    if found.transfer_ns is None or found.peer_wait_ns is None:
        return None, None
    exposed, recorded = (run.part_ns or {}).get("comm_exposed"), found.transfer_ns + found.peer_wait_ns
    share = exposed / recorded if exposed is not None and found.steps != run.steady_steps and recorded > 0 else 1.0
    return found.transfer_ns * share, found.peer_wait_ns * share


def _achieved(run: Run, samples_per_s: float | None) -> dict[str, Any]:
    found = run.used
    row: dict[str, Any] = {
        "arithmetic": found.arithmetic,
        "peak_memory_bytes": found.peak_memory_bytes,
        TOKENS_PER_S: samples_per_s * found.tokens_per_sample if samples_per_s and found.tokens_per_sample else None,
        "energy_j_per_1000_samples": found.energy_j_per_1000_samples,
    }
    if run.point and samples_per_s and found.flops_per_sample:
        flops_per_s = flops_per_s_per_gpu(found.flops_per_sample, samples_per_s, run.point.gpus)
        share = share_of_peak(flops_per_s, run.gpu, found.arithmetic) if run.gpu and found.arithmetic else None
        row |= {"flops_per_s_per_gpu": flops_per_s, "share_of_peak": share}
    return row


NAMES = {
    "data_wait": "data wait",
    "h2d_exposed": "copy",
    "forward": "forward",
    "backward": "backward",
    "comm_exposed": "exchange + sync wait",
    "transfer": "exchange",
    "peer_wait": "sync wait",
    "optimizer": "optimizer",
    "other": "other",
    "unaccounted": "unaccounted",
}
"""Part that is shown -> its name in tables and figures. Exposed communication is shown only where it could not be split."""

SHOWN = {name: ("record", "other") if name == "other" else (name,) for name in NAMES}
"""Part that is shown -> the recorded parts it sums."""

HIDDEN = ("h2d_hidden", "comm_hidden")
"""Parts that overlap others, and so stand outside the sum."""


def shown_parts(scaling: pd.DataFrame) -> pd.DataFrame:
    """Seconds per step by part, for rows of scaling_frame; NA: not measured, and parts that no point measured are left out."""
    parts = pd.DataFrame({name: _sum(scaling, of) for name, of in SHOWN.items()}, index=scaling.index)
    parts["comm_exposed"] = parts["comm_exposed"].mask(parts["transfer"].notna())
    return parts.dropna(axis="columns", how="all")


def hidden_parts(scaling: pd.DataFrame) -> pd.DataFrame:
    """Seconds per step of the hidden parts, likewise."""
    parts = pd.DataFrame({name: _sum(scaling, (name,)) for name in HIDDEN}, index=scaling.index)
    return parts.dropna(axis="columns", how="all")


def step_total_s(scaling: pd.DataFrame) -> pd.Series[Any]:
    """Seconds that the parts add up to: the step of the runs that they come from."""
    return scaling["step_hook_s"].fillna(scaling["step_s"])


def _sum(scaling: pd.DataFrame, parts: tuple[str, ...]) -> pd.Series[Any]:
    return scaling[[f"{part}_s" for part in parts]].sum(axis=1, min_count=1)


COST_COLUMNS = {
    "epoch_samples": "Int64",
    **dict.fromkeys(("epoch_s", "epoch_s_low", "epoch_s_high", "pauses_s_per_epoch"), "Float64"),
    **dict.fromkeys(("node_h_per_epoch", "gpu_h_per_epoch", "gpu_kwh_per_epoch"), "Float64"),
    "train_epochs": "Int64",
    **dict.fromkeys(("train_s", "node_h_to_train", "gpu_h_to_train", "gpu_kwh_to_train"), "Float64"),
}
"""Means over the runs of a point, as hours are billed by their sum; `_low` and `_high` are the least and the most of any run, NA
for a single one. Training alone: no start, evaluation or checkpoint. What these and other pauses of `work: train` took per epoch
is `pauses_s_per_epoch`, and in nothing else. NA where an epoch's samples or the GPUs' energy are not known, where data or
training were left out (`measure.input`), and of a training where nobody said how many epochs it takes."""


def costs(point: dict[str, Any], runs: pd.DataFrame) -> dict[str, Any]:
    """COST_COLUMNS of a row of the scaling table, with the `rates` of its `runs`, those that its throughput comes from."""
    samples = runs["epoch_samples"].iloc[0]
    if pd.isna(samples) or point["input"] != "full":
        return {}
    times = [int(samples) / rate for rate in point["rates"]]
    seconds = float(statistics.mean(times))
    joules = runs["energy_j_per_1000_samples"].mean()
    several = len(times) > 1
    return {
        "epoch_samples": samples,
        "epoch_s": seconds,
        "epoch_s_low": float(min(times)) if several else None,
        "epoch_s_high": float(max(times)) if several else None,
        "pauses_s_per_epoch": runs["pauses_s"].mean(),
        "node_h_per_epoch": unit_hours(point["nodes"], seconds),
        "gpu_h_per_epoch": None if point["device"] == "cpu" else unit_hours(point["gpus"], seconds),
        "gpu_kwh_per_epoch": None if pd.isna(joules) else energy_kwh(int(samples), joules),
    }


OF_TRAINING = {
    "train_s": "epoch_s",
    "node_h_to_train": "node_h_per_epoch",
    "gpu_h_to_train": "gpu_h_per_epoch",
    "gpu_kwh_to_train": "gpu_kwh_per_epoch",
}
"""Column of a training -> the column of an epoch that `train_epochs` multiplies."""


def with_training(scaling: pd.DataFrame, epochs: int | None) -> pd.DataFrame:
    """The table with the costs of a training of `epochs` epochs at every size; unchanged where `epochs` is None."""
    if epochs is None:
        return scaling
    known = scaling["epoch_s"].notna()
    columns = {name: scaling[column] * epochs for name, column in OF_TRAINING.items()}
    return scaling.assign(train_epochs=pd.Series(epochs, index=scaling.index, dtype="Int64").where(known), **columns)


def unit_hours(units: int, seconds: float) -> float:
    """Nodes (or GPUs) x hours, as centres account for them: a node is taken whole, however many of its GPUs are used."""
    return units * seconds / 3600


def energy_kwh(samples: int, j_per_1000_samples: float) -> float:
    """J per 1000 samples x samples / 1000 / 3.6e6 J per kWh: energy of the GPUs, without hosts, network and cooling."""
    return j_per_1000_samples * samples / 1000 / 3.6e6
