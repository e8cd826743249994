"""Runs as a table: one row per run, seconds and samples, unknown as NA."""

from __future__ import annotations

from typing import Any

import pandas as pd

from hpcddp.analysis.load import Run, StudyRecords
from hpcddp.analysis.series import key_text, series_key
from hpcddp.analysis.steps import throughput_per_s
from hpcddp.records import PARTS

RUN_COLUMNS = {
    "label": "string",
    "run": "Int64",
    "attempt": "string",
    "state": "string",
    "reason": "string",
    "series": "string",
    "nodes": "Int64",
    "gpus_per_node": "Int64",
    "ranks": "Int64",
    "batch_per_gpu": "Int64",
    "global_batch": "Int64",
    "device": "string",
    "work": "string",
    "node_type": "string",
    "gpu": "string",
    "env_id": "string",
    "steady_steps": "Int64",
    "step_ns": "Float64",
    "samples_per_s": "Float64",
    **{f"{part}_s": "Float64" for part in PARTS},
    "loss_first": "Float64",
    "loss_last": "Float64",
    "eval_samples": "Int64",
    "eval_correct": "Int64",
}
"""`series` is the text of the run's series key; `ranks` is one per GPU (with `device: cpu` one where a GPU would be)."""


def runs_frame(records: StudyRecords) -> pd.DataFrame:
    """All runs, counting or not, by label and run number."""
    rows = [_row(run, records.hold) for run in records.runs]
    return pd.DataFrame(rows, columns=list(RUN_COLUMNS)).astype(RUN_COLUMNS)


def _row(run: Run, hold: str) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(run, name) for name in RUN_COLUMNS if name in Run.__dataclass_fields__}
    if run.point is not None:
        layout = run.point.layout
        row |= {
            "series": key_text(series_key(run.point, hold, run.env_id, run.gpu)) if run.state != "missing" else None,
            "nodes": layout.nodes,
            "gpus_per_node": layout.gpus_per_node,
            "ranks": run.point.ranks,
            "batch_per_gpu": run.point.workload.batch_per_gpu,
            "device": run.point.device,
            "work": run.point.work,
            "node_type": layout.node_type,
        }
    if run.step_ns is not None and run.part_ns is not None and run.global_batch is not None:
        row["samples_per_s"] = float(throughput_per_s(run.global_batch, run.step_ns))
        row |= {f"{part}_s": None if value is None else value / 1e9 for part, value in run.part_ns.items()}
    return row
