"""The buckets of gradients of each run, one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from hpcddp.analysis.runs.communication import algorithm_bandwidth, bus_bandwidth
from hpcddp.analysis.runs.run import Run

BUCKET_COLUMNS = {
    **{"label": "string", "run": "Int64", "bucket": "Int64", "bytes": "Int64", "slack_s": "Float64", "own_s": "Float64"},
    **{"algbw_bytes_per_s": "Float64", "busbw_bytes_per_s": "Float64"},
}
"""Medians over steady steps. `slack_s` is the time from the first rank that is ready to the last; `own_s` is how long this
bucket itself travelled, and the bandwidths are its own: only on NCCL, where buckets travel one after the other."""


def buckets_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """A row per bucket of each run with the communication hook, whether the run counts or not."""
    rows = [row for run in runs for row in _rows(run)]
    return pd.DataFrame(rows, columns=list(BUCKET_COLUMNS)).astype(BUCKET_COLUMNS)


def _rows(run: Run) -> Iterator[dict[str, Any]]:
    if run.exchange is None or run.point is None:
        return
    for _, bucket in run.exchange.buckets.iterrows():
        row = {"label": run.label, "run": run.run, "slack_s": bucket["slack_ns"] / 1e9}
        row |= {name: int(bucket[name]) for name in ("bucket", "bytes")}
        if run.point.device == "cuda":
            own_s = bucket["own_ns"] / 1e9
            algorithm = algorithm_bandwidth(row["bytes"], own_s)
            row |= {
                "own_s": own_s,
                "algbw_bytes_per_s": algorithm,
                "busbw_bytes_per_s": bus_bandwidth(algorithm, run.point.ranks),
            }
        yield row
