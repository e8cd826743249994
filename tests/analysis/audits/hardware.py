"""Faults of nodes and GPUs, each planted in a table that is otherwise right."""

from __future__ import annotations

import random
from collections.abc import Callable

from .generated import GeneratedTable, clean
from .planting import Lines, Plant, lines, pick


def gpu_types_pooled(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    table = clean(rng, runs=3, average=rng.choice(["column", "row"]))
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


def gpu_types_compared(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    table = clean(rng, runs=1)
    for i, row in enumerate(table.rows):
        row["gpu_type"] = "A40" if i else "V100"
        row["node_list"] = ""
    return table, set(range(3, len(table.rows) + 2))


def gpu_type_wrong(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    table = clean(rng, runs=1)
    for row in table.rows:
        row["gpu_type"] = "V100"
    table.rows[-1]["node_list"] = "gn[" + ",".join(f"{7 + i:02}" for i in range(int(table.rows[-1]["nodes"]))) + "]"
    if table.rows[-1]["nodes"] != "1":
        for row in table.rows:
            row["gpu_type"] = "A100"
            row["node_list"] = ""
        table.rows[0]["node_list"] = "gn01" if table.rows[0]["nodes"] == "1" else ""
        return table, {2}
    return table, {len(table.rows) + 1}


def gpus_wrong(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    table = clean(rng, runs=1)
    i = rng.randrange(1, len(table.rows))
    for row in table.rows:
        row["gpus"] = str(int(row["nodes"]) * int(row["gpus_per_node"]))
    table.rows[i]["gpus"] = str(int(table.rows[i]["gpus"]) + rng.choice([1, 2, 4]))
    return table, {i + 2}


def gpus_exceed_node(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    table = clean(rng, runs=1, shape="in the node")
    row = {key: cell for key, cell in table.rows[-1].items() if key in ("dataset", "nodes", "node_list", "batch_per_gpu")}
    table.rows.append({**row, "gpus_per_node": "8", "time": table.show(table.true[-1] * 0.6)})
    return table, {len(table.rows) + 1}


def node_list(change: Callable[[str, int], str]) -> Plant:
    def plant(rng: random.Random) -> tuple[GeneratedTable, Lines]:
        table = clean(rng, runs=1, shape=rng.choice(["one GPU per node", "nodes"]))
        i = rng.randrange(1, len(table.rows))
        table.rows[i]["node_list"] = change(table.rows[i]["node_list"], int(table.rows[i]["nodes"]))
        return table, {i + 2}

    return plant
