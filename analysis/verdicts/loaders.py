"""What the loaders of each point gave and waited for, with the limit that holds where the step waits for data."""

from __future__ import annotations

from typing import Any

import pandas as pd

from hpcddp.analysis.records.merged_loader import pooled
from hpcddp.analysis.verdicts.context import INPUT_SHARE, Case, PointRow, step_s
from hpcddp.analysis.verdicts.loader_limit import loader_limit
from hpcddp.core.loader_record import LoaderTimes

LOADER_COLUMNS = {
    "label": "string",
    "series": "string",
    "nodes": "Int64",
    "gpus_per_node": "Int64",
    "gpus": "Int64",
    "device": "string",
    "input": "string",
    "n": "Int64",
    "workers": "Int64",
    "samples_per_s": "Float64",
    "data_wait_share": "Float64",
    "loader_samples_per_s": "Float64",
    "compute_share": "Float64",
    "processor_wait_share": "Float64",
    "storage_wait_share": "Float64",
    "hand_over_share": "Float64",
    "limit": "string",
}
"""`workers` of a rank; `samples_per_s` trained, or loaded alone with `input: io`; `data_wait_share` of the step; `loader_...` as
LoaderTimes has it; shares are of the time that loaders spend on batches. `limit`: where the step waits."""

OF_ROW = ("label", "series", "nodes", "gpus_per_node", "gpus", "device", "input", "n", "samples_per_s")


def loaders_frame(case: Case, scaling: pd.DataFrame) -> pd.DataFrame:
    """A row per row of the scaling table whose runs have loaders."""
    known = ((row, pooled(run.loader for run in case.runs_of(row))) for _, row in scaling.iterrows())
    rows = [_row(case, row, times) for row, times in known if times is not None]
    return pd.DataFrame(rows, columns=list(LOADER_COLUMNS)).astype(LOADER_COLUMNS)


def _row(case: Case, row: PointRow, times: LoaderTimes) -> dict[str, Any]:
    total_s = times.read_s + times.hand_over_s
    waits = (times.processor_wait_s, times.storage_wait_s)
    shares = [None if part_s is None else part_s / total_s for part_s in (times.compute_s, *waits, times.hand_over_s)]
    wait = None if pd.isna(row["data_wait_s"]) else float(row["data_wait_s"] / step_s(row))
    limit = loader_limit(case, row) if row["input"] == "full" and wait is not None and wait >= INPUT_SHARE else None
    return {
        **{name: row[name] for name in OF_ROW},
        "workers": times.workers,
        "data_wait_share": wait,
        "loader_samples_per_s": times.samples_per_s,
        **dict(zip(("compute_share", "processor_wait_share", "storage_wait_share", "hand_over_share"), shares, strict=True)),
        "limit": limit.limit if limit else None,
    }
