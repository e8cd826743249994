"""What gradients reached of the network while training, to stand beside the collectives alone, and the fabric's limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from hpcddp.analysis.study.comm_bench import fabric_limit, size_words
from hpcddp.analysis.verdicts.context import Case

TRAINED_COLUMNS = {
    **{"layout": "string", "nodes": "Int64", "gpus_per_node": "Int64", "gpu": "string", "kind": "string", "bytes": "Int64"},
    **{"busbw_bytes_per_s": "Float64", "limit_bytes_per_s": "Float64"},
}
"""`kind`: bucket, each by itself (NCCL); or together, a step's at their mean size (gloo, which has two under way at once)."""


def trained_frame(case: Case) -> pd.DataFrame:
    """Rows of points with the communication hook and several ranks; TRAINED_COLUMNS."""
    rows = [row for _, point in case.points.iterrows() for row in _of_point(case, point)]
    return pd.DataFrame(rows, columns=list(TRAINED_COLUMNS)).astype(TRAINED_COLUMNS)


def _of_point(case: Case, point: pd.Series[Any]) -> Iterator[dict[str, Any]]:
    if pd.isna(point["busbw_bytes_per_s"]) or point["ranks"] < 2:
        return
    runs = case.runs_of(point)
    hooked = {run.key for run in runs if run.exchange is not None}
    mine = case.buckets[[pair in hooked for pair in zip(case.buckets["label"], case.buckets["run"], strict=True)]]
    who = {name: point[name] for name in ("nodes", "gpus_per_node", "gpu")}
    who["layout"] = size_words(int(point["nodes"]), int(point["gpus_per_node"]), str(point["device"]))
    who["limit_bytes_per_s"] = fabric_limit(next((run.fabric_gbps for run in runs), None), int(point["nodes"]))
    by_size = mine.dropna(subset=["busbw_bytes_per_s"]).groupby("bytes")["busbw_bytes_per_s"].median()
    yield from ({**who, "kind": "bucket", "bytes": size, "busbw_bytes_per_s": rate} for size, rate in by_size.items())
    if by_size.empty and len(mine):
        number = len(mine) / len(hooked)
        yield {
            **who,
            "kind": "together",
            "bytes": round(float(point["step_bytes"]) / number),
            "busbw_bytes_per_s": point["busbw_bytes_per_s"],
        }
