"""The tables on the terminal: how it scales, where the step goes, how gradients travel, what limits it.

Each is a list of the forms it can have, the fullest first: whoever prints it takes the first that fits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from hpcddp.analysis.study.breakdown import hidden_parts, shown_parts, whole_step
from hpcddp.analysis.study.comm_bench import OPS
from hpcddp.analysis.study.series import Apart, value_text
from hpcddp.analysis.util.column_heads import baselines, spread_head, unit_of, whole_percent
from hpcddp.analysis.util.wording import duration, percent, percent_within, percents, quantity, times
from hpcddp.core.text import message_size

HEADS = {
    "data_wait": "data",
    "h2d_exposed": "copy",
    "forward": "fwd",
    "backward": "bwd",
    "comm_exposed": "comm",
    "transfer": "transfer",
    "peer_wait": "wait",
    "optimizer": "opt",
    "other": "other",
    "unaccounted": "unacc",
    "h2d_hidden": "(copy)",
    "comm_hidden": "(comm)",
}
"""Heads of the breakdown's columns; what is hidden behind other parts is in brackets."""


def scaling_table(scaling: pd.DataFrame, apart: Apart) -> list[str]:
    """Throughput with its spread, speedup and efficiency against its baselines; one line per point.

    Beside them the time and the node hours of an epoch, where they are known; a form without them says where they are.
    """
    gpu = unit_of(scaling)
    keys = _keys(apart)
    bases = baselines(scaling)
    heads = ["nodes", f"{gpu}s/node", f"{gpu}s", *keys, "n", _spread_head(scaling), *bases.values()]
    rows = [
        [
            *_layout(row, apart, keys),
            str(row["n"]),
            _throughput(row),
            *against,
        ]
        for (_, row), *against in zip(scaling.iterrows(), *(_against(scaling, base) for base in bases), strict=True)
    ]
    plain = folded(heads, rows, keys)
    if scaling["epoch_s"].isna().all():
        return plain
    costs = [[_duration(row["epoch_s"]), _quantity(row["node_h_per_epoch"], 1)] for _, row in scaling.iterrows()]
    wider = folded([*heads, "epoch", "node h"], [row + cost for row, cost in zip(rows, costs, strict=True)], keys)
    return [*wider, *(f"{narrow}\n{_left_out(wider[-1])}" for narrow in plain)]


def _left_out(table: str) -> str:
    return f"  epoch and node h need {max(map(len, table.splitlines()))} columns; scaling.csv and index.html have them"


def _duration(seconds: float) -> str:
    return "-" if pd.isna(seconds) else duration(seconds)


def breakdown_table(scaling: pd.DataFrame, apart: Apart) -> list[str]:
    """The step in milliseconds, also with the communication hook, and the share of each part, %; `-` was not measured."""
    keys, hooked = _keys(apart), scaling["step_hook_s"].notna().any()
    parts = pd.concat([shown_parts(scaling), hidden_parts(scaling)], axis=1)
    shares = parts.div(whole_step(scaling), axis=0).to_numpy(dtype=float, na_value=math.nan)
    heads = [_size_head(scaling), *keys, "step ms", *(["hook ms"] if hooked else []), *(HEADS[str(part)] for part in parts)]
    rows = [
        [
            *_size(row, apart, keys),
            _ms(row["step_s"]),
            *([_ms(row["step_hook_s"])] if hooked else []),
            *(_whole(share) for share in row_shares),
        ]
        for (_, row), row_shares in zip(scaling.iterrows(), shares, strict=True)
    ]
    return folded(heads, rows, keys)


def exchange_table(scaling: pd.DataFrame, apart: Apart) -> list[str]:
    """How gradients travel, of layouts with the communication hook; empty where there are none. A single rank's go nowhere."""
    known = scaling[scaling["step_bytes"].notna() & (scaling["ranks"] > 1)]
    if known.empty:
        return []
    keys = _keys(apart)
    heads = [_size_head(scaling), *keys, "MB/step", "hidden ms", "transfer ms", "peer wait ms", "overlap", "alg GB/s", "bus GB/s"]
    rows = [
        [
            *_size(row, apart, keys),
            _quantity(row["step_bytes"], 1e-6),
            *(_ms(row[f"{part}_s"]) for part in ("comm_hidden", "transfer", "peer_wait")),
            "-" if pd.isna(row["comm_overlap"]) else percent(row["comm_overlap"]),
            *(_quantity(row[f"{name}_bytes_per_s"], 1e-9) for name in ("algbw", "busbw")),
        ]
        for _, row in known.iterrows()
    ]
    return folded(heads, rows, keys)


def training_table(scaling: pd.DataFrame, apart: Apart) -> list[str]:
    """What a whole training costs at each size; empty where nobody said how many epochs it takes, or they are of unknown size."""
    known = scaling[scaling["train_s"].notna()]
    if known.empty:
        return []
    keys = _keys(apart)
    amounts = {"node h": "node_h_to_train", "GPU h": "gpu_h_to_train", "GPU kWh": "gpu_kwh_to_train"}
    amounts = {head: column for head, column in amounts.items() if known[column].notna().any()}
    heads = [_size_head(scaling), *keys, "n", _spread_head(known, "time"), *amounts, "runs in"]
    rows = [
        [
            *_size(row, apart, keys),
            str(row["n"]),
            _training_time(row),
            *(_quantity(row[column], 1) for column in amounts.values()),
            row["label"],
        ]
        for _, row in known.iterrows()
    ]
    return folded(heads, rows, keys)


def _training_time(row: pd.Series[Any]) -> str:
    """It goes with 1 / throughput: the highest throughput is the least of it."""
    if pd.isna(row["interval"]):
        return duration(row["train_s"])
    low, high = (row["train_s"] * row["samples_per_s"] / row[f"samples_per_s_{end}"] for end in ("high", "low"))
    return f"{duration(row['train_s'])} ({duration(low)}-{duration(high)})"


def limits_table(limits: pd.DataFrame) -> str:
    """Full training beside what the trainer and the loader reach alone, samples/s; `limits`: rows of limits_frame."""
    keys = [name for name in ("series",) if limits[name].ne("").any()]
    heads = [_size_head(limits), *keys, "full", "trainer's limit", "loader's limit"]
    rows = [
        [f"{row['nodes']} x {row['gpus_per_node']}", *(row[key] for key in keys)]
        + [_quantity(row[kind], 1) for kind in ("full", "synthetic", "io")]
        for _, row in limits.iterrows()
    ]
    return lines(heads, rows)


def comm_table(fits: pd.DataFrame) -> str:
    """Latency and bus bandwidth, one line per layout and operation."""
    heads = ["layout", "operation", "latency us", "fitted GB/s", "GB/s", "at"]
    rows = [
        [
            row["layout"],
            OPS[row["op"]],
            _quantity(row["latency_s"], 1e6),
            _quantity(row["busbw_bytes_per_s"], 1e-9),
            _quantity(row["largest_busbw_bytes_per_s"], 1e-9),
            message_size(row["largest_bytes"]),
        ]
        for _, row in fits.iterrows()
    ]
    return lines(heads, rows)


def folded(heads: Sequence[str], rows: Sequence[Sequence[str]], keys: Sequence[str]) -> list[str]:
    """The table; and a narrower one, where what tells series apart (the columns `keys`) is a line above each series instead."""
    table = lines(heads, rows)
    if not keys:
        return [table]
    apart = [i for i, head in enumerate(heads) if head in keys]
    others = [i for i in range(len(heads)) if i not in apart]
    names = [", ".join(f"{heads[i]} {row[i]}" for i in apart) for row in rows]
    head, *body = lines([heads[i] for i in others], [[row[i] for i in others] for row in rows]).splitlines()
    found = [head]
    for before, name, line in zip(["", *names], names, body, strict=False):
        found += [*([f"  {name}"] if name != before else []), line]
    return [table, "\n".join(found)]


def lines(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Right-aligned columns, two spaces apart and indented by two."""
    widths = [max(len(cell) for cell in column) for column in zip(heads, *rows, strict=True)]
    return "\n".join(
        ("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))).rstrip() for row in (heads, *rows)
    )


def _keys(apart: Apart) -> list[str]:
    return list(next(iter(apart.values()), {}))


def _layout(row: pd.Series[Any], apart: Apart, keys: Sequence[str]) -> list[str]:
    return [str(row["nodes"]), str(row["gpus_per_node"]), str(row["gpus"]), *_values(row, apart, keys)]


def _spread_head(scaling: pd.DataFrame, what: str = "samples/s") -> str:
    return f"{what} ({spread_head(scaling['interval'])})" if scaling["interval"].notna().any() else what


def _throughput(row: pd.Series[Any]) -> str:
    middle = quantity(row["samples_per_s"])
    if pd.isna(row["interval"]):
        return middle
    return f"{middle} ({quantity(row['samples_per_s_low'])}-{quantity(row['samples_per_s_high'])})"


def _against(scaling: pd.DataFrame, baseline: str) -> list[str]:
    """`24.9x   39 % (38-41)` for each row, the brackets below each other; they are what the column `interval` says."""
    share = f"efficiency_{baseline}"
    rows = list(scaling[[f"speedup_{baseline}", share, f"{share}_low", f"{share}_high"]].itertuples(index=False))
    ends = [_ends(low, high) for _, _, low, high in rows]
    middles = ["" if pd.isna(speedup) else _percent(middle, low, high) for speedup, middle, low, high in rows]
    wide, middle_wide = (max(map(len, texts), default=0) for texts in (ends, middles))
    return [
        f"{times(row[0])}x {middle:>{middle_wide}}{end:<{wide}}" if middle else "-"
        for row, middle, end in zip(rows, middles, ends, strict=True)
    ]


def _percent(middle: float, low: float, high: float) -> str:
    return percent(middle) if pd.isna(low) else percent_within(middle, low, high)


def _ends(low: float, high: float) -> str:
    return "" if pd.isna(low) else f" ({percents(low, high)})"


def _size_head(scaling: pd.DataFrame) -> str:
    return f"nodes x {unit_of(scaling)}s"


def _size(row: pd.Series[Any], apart: Apart, keys: Sequence[str]) -> list[str]:
    """The layout in one column, for tables with many others."""
    return [f"{row['nodes']} x {row['gpus_per_node']}", *_values(row, apart, keys)]


def _values(row: pd.Series[Any], apart: Apart, keys: Sequence[str]) -> list[str]:
    return [value_text(apart[row["series"]][key]) for key in keys]


def _ms(seconds: float) -> str:
    return _quantity(seconds, 1e3)


def _quantity(value: float, scale: float) -> str:
    return "-" if pd.isna(value) else quantity(value * scale)


def _whole(share: float) -> str:
    return "-" if pd.isna(share) else whole_percent(share)
