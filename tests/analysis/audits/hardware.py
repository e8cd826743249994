"""Faults of nodes and GPUs, each planted in a table that is otherwise right."""

from __future__ import annotations

import random
from collections.abc import Callable

from .generated import Made, clean
from .planting import Lines, Plant, lines, pick


def gpu_types_pooled(rng: random.Random) -> tuple[Made, Lines]:
    made = clean(rng, runs=3, average=rng.choice(["column", "row"]))
    of = made.of(*pick(made))
    for row in made.rows:
        if row.get("run") != "avg":
            row["gpu_type"] = "V100-32GB"
    made.rows[of[-1]]["gpu_type"] = "A40-48GB"
    made.rows[of[-1]]["node_list"] = ""
    return made, lines(of)


def gpu_types_mixed_in_row(rng: random.Random) -> tuple[Made, Lines]:
    made = clean(rng, runs=1, shape="one GPU per node")
    i = made.of(*pick(made))[0]
    for row in made.rows:
        row["gpu_type"] = "V100"
    made.rows[i]["gpu_type"] = rng.choice(["V100 + A40", "V100/A100"])
    return made, {i + 2}


def gpu_types_compared(rng: random.Random) -> tuple[Made, Lines]:
    made = clean(rng, runs=1)
    for i, row in enumerate(made.rows):
        row["gpu_type"] = "A40" if i else "V100"
        row["node_list"] = ""
    return made, set(range(3, len(made.rows) + 2))


def gpu_type_wrong(rng: random.Random) -> tuple[Made, Lines]:
    made = clean(rng, runs=1)
    for row in made.rows:
        row["gpu_type"] = "V100"
    made.rows[-1]["node_list"] = "gn[" + ",".join(f"{7 + i:02}" for i in range(int(made.rows[-1]["nodes"]))) + "]"
    if made.rows[-1]["nodes"] != "1":
        for row in made.rows:
            row["gpu_type"] = "A100"
            row["node_list"] = ""
        made.rows[0]["node_list"] = "gn01" if made.rows[0]["nodes"] == "1" else ""
        return made, {2}
    return made, {len(made.rows) + 1}


def gpus_wrong(rng: random.Random) -> tuple[Made, Lines]:
    made = clean(rng, runs=1)
    i = rng.randrange(1, len(made.rows))
    for row in made.rows:
        row["gpus"] = str(int(row["nodes"]) * int(row["gpus_per_node"]))
    made.rows[i]["gpus"] = str(int(made.rows[i]["gpus"]) + rng.choice([1, 2, 4]))
    return made, {i + 2}


def gpus_exceed_node(rng: random.Random) -> tuple[Made, Lines]:
    made = clean(rng, runs=1, shape="in the node")
    row = {key: cell for key, cell in made.rows[-1].items() if key in ("dataset", "nodes", "node_list", "batch_per_gpu")}
    made.rows.append({**row, "gpus_per_node": "8", "time": made.show(made.true[-1] * 0.6)})
    return made, {len(made.rows) + 1}


def node_list(change: Callable[[str, int], str]) -> Plant:
    def plant(rng: random.Random) -> tuple[Made, Lines]:
        made = clean(rng, runs=1, shape=rng.choice(["one GPU per node", "nodes"]))
        i = rng.randrange(1, len(made.rows))
        made.rows[i]["node_list"] = change(made.rows[i]["node_list"], int(made.rows[i]["nodes"]))
        return made, {i + 2}

    return plant
