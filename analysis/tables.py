"""The tables on the terminal, about 100 columns wide: how it scales, and where the step goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from hpcddp.analysis.series import Apart, value_text
from hpcddp.analysis.wording import percent, quantity, times, unit

SHARES = {
    "data_wait": "data",
    "h2d_exposed": "copy",
    "forward": "fwd",
    "backward": "bwd",
    "comm_exposed": "comm",
    "optimizer": "opt",
    "record": "record",
    "other": "other",
    "unaccounted": "unacc",
}
"""Heads of the breakdown's columns, in the order of a step."""

NARROW = 16
"""Characters a value that tells series apart may take."""


def scaling_table(scaling: pd.DataFrame, apart: Apart) -> str:
    """Throughput with its spread, speedup and efficiency against both baselines; one line per point."""
    gpu = _unit(scaling)
    keys = _keys(apart)
    heads = ["nodes", f"{gpu}s/node", f"{gpu}s", *keys, "n", _spread_head(scaling), f"vs 1 {gpu}", _node_head(scaling)]
    rows = [
        [
            *_layout(row, apart, keys),
            str(row["n"]),
            _throughput(row),
            _against(row, "1gpu"),
            _against(row, "1node"),
        ]
        for _, row in scaling.iterrows()
    ]
    return lines(heads, rows)


def breakdown_table(scaling: pd.DataFrame, apart: Apart) -> str:
    """The step in milliseconds and the share of each part, %; a part that was not measured is `-`."""
    gpu, keys = _unit(scaling), _keys(apart)
    heads = ["nodes", f"{gpu}s/node", f"{gpu}s", *keys, "step ms", *SHARES.values()]
    rows = [
        [*_layout(row, apart, keys), quantity(row["step_s"] * 1e3), *(_share(row, part) for part in SHARES)]
        for _, row in scaling.iterrows()
    ]
    return lines(heads, rows)


def lines(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Right-aligned columns, two spaces apart and indented by two."""
    widths = [max(len(cell) for cell in column) for column in zip(heads, *rows, strict=True)]
    return "\n".join(
        "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in (heads, *rows)
    )


def _unit(scaling: pd.DataFrame) -> str:
    return "rank" if (scaling["device"] == "cpu").all() else unit("cuda")


def _keys(apart: Apart) -> list[str]:
    return list(next(iter(apart.values()), {}))


def _layout(row: pd.Series[Any], apart: Apart, keys: Sequence[str]) -> list[str]:
    values = [value_text(apart[row["series"]][key])[:NARROW] for key in keys]
    return [str(row["nodes"]), str(row["gpus_per_node"]), str(row["ranks"]), *values]


def _spread_head(scaling: pd.DataFrame) -> str:
    kinds = set(scaling["interval"].dropna())
    return f"samples/s ({kinds.pop() if len(kinds) == 1 else 'spread'})" if kinds else "samples/s"


def _node_head(scaling: pd.DataFrame) -> str:
    """Names the baseline by its size where all series have the same."""
    sizes = set(scaling["full_node_gpus"])
    return f"vs 1 node of {sizes.pop()}" if len(sizes) == 1 else "vs 1 node"


def _throughput(row: pd.Series[Any]) -> str:
    middle = quantity(row["samples_per_s"])
    if pd.isna(row["interval"]):
        return middle
    return f"{middle} ({quantity(row['samples_per_s_low'])}-{quantity(row['samples_per_s_high'])})"


def _against(row: pd.Series[Any], baseline: str) -> str:
    """`24.9x   39 %`"""
    if pd.isna(row[f"speedup_{baseline}"]):
        return "-"
    return f"{times(row[f'speedup_{baseline}'])}x {percent(row[f'efficiency_{baseline}']):>5}"


def _share(row: pd.Series[Any], part: str) -> str:
    return "-" if pd.isna(row[f"{part}_s"]) else f"{100 * row[f'{part}_s'] / row['step_s']:.0f}".replace("-0", "0")
