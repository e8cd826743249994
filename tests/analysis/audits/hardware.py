"""Faults of nodes and GPUs, each planted in a table that is otherwise right."""

from __future__ import annotations

import random

from .generated import GeneratedTable, clean
from .planting import Lines, lines, pick


def gpu_types_pooled(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    table = clean(rng, runs=3, average="row")
    of = table.of(*pick(table))
    for row in table.rows:
        if row.get("run") != "avg":
            row["gpu_type"] = "V100-32GB"
    table.rows[of[-1]]["gpu_type"] = "A40-48GB"
    table.rows[of[-1]]["node_list"] = ""
    return table, lines(of)


def gpu_types_mixed_in_row(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    table = clean(rng, runs=1, shape="one GPU per node")
    i = table.of(*pick(table))[0]
    for row in table.rows:
        row["gpu_type"] = "V100"
    table.rows[i]["gpu_type"] = rng.choice(["V100 + A40", "V100/A100"])
    return table, {i + 2}
