"""The exchange of each run: its buckets of gradients one by one, and which ranks the others wait for."""

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


STRAGGLER_COLUMNS = {
    **{"label": "string", "run": "Int64", "rank": "Int64", "host": "string", "last": "Float64"},
    **{f"{name}_s": "Float64" for name in ("slack", "transfer", "peer_wait", "comm_hidden", "others_wait")},
}
"""`last`: the share of all-reduces at which the others waited for it; `slack_s`: how long before the last rank it was ready, the
median over all-reduces; `others_wait_s`: the mean of the other ranks' peer wait per step."""


def stragglers_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """A row per rank of each run with the communication hook and known clocks, whether the run counts or not."""
    tables = [_of_run(run, run.exchange.ranks) for run in runs if run.exchange is not None and len(run.exchange.ranks)]
    rows = pd.concat(tables) if tables else pd.DataFrame(columns=list(STRAGGLER_COLUMNS))
    return rows.astype(STRAGGLER_COLUMNS).reset_index(drop=True)


def _of_run(run: Run, ranks: pd.DataFrame) -> pd.DataFrame:
    waits = ranks["peer_wait_ns"]
    found = ranks[["rank", "host", "last"]].assign(label=run.label, run=run.run)
    for name in ("slack", "transfer", "peer_wait"):
        found[f"{name}_s"] = ranks[f"{name}_ns"] / 1e9
    found["comm_hidden_s"] = ranks["hidden_ns"] / 1e9
    found["others_wait_s"] = (waits.sum() - waits) / max(1, len(waits) - 1) / 1e9
    return found[list(STRAGGLER_COLUMNS)]
