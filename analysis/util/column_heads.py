"""What heads of tables say of the rows below them, on the terminal and in the report alike."""

from __future__ import annotations

from typing import Any

import pandas as pd

from hpcddp.analysis.util.wording import unit


def unit_of(scaling: pd.DataFrame) -> str:
    """What is counted in the table: `GPU`, on CPUs alone `rank`."""
    return unit("cpu") if (scaling["device"] == "cpu").all() else unit("cuda")


def baselines(scaling: pd.DataFrame) -> dict[str, str]:
    """What efficiencies are against, as columns end, with their heads: a full node by its size where all series have the same,
    not at all where it is one GPU.
    """
    sizes = set(scaling["full_node_gpus"])
    node = {} if sizes == {1} else {"1node": f"vs 1 node of {sizes.pop()}" if len(sizes) == 1 else "vs 1 node"}
    return {"1gpu": f"vs 1 {unit_of(scaling)}", **node}


def spread_head(intervals: pd.Series[Any]) -> str:
    """`95 %` or `range`; `spread` where rows have either, or none has any."""
    kinds = set(intervals.dropna())
    return str(kinds.pop()) if len(kinds) == 1 else "spread"


def whole_percent(share: float) -> str:
    """Without the sign: `39`; noise below nothing is `0`."""
    return f"{100 * share:.0f}".replace("-0", "0")
