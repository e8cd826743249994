"""Faults of times and what else is measured, each planted in a table that is otherwise right."""

from __future__ import annotations

import random
from collections.abc import Callable

from .generated import GeneratedTable, clean
from .planting import Lines, Plant, lines, pick, seconds


def average_wrong(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    """Between the fastest and the slowest run, but not their mean."""
    table = clean(rng, runs=5, average="row", noise=0.03, show=seconds, shape="nodes")
    of = table.of(*pick(table))
    true = sorted(table.true[i] for i in of)
    i = of[-1] + 1
    table.rows[i]["time"] = seconds(0.4 * true[-2] + 0.6 * true[-1])
    table.leave_out(*table.extra.values())
    return table, {i + 2}


def average_outside_rows(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    table = clean(rng, runs=3, average="row")
    (i,) = [
        i
        for i, row in enumerate(table.rows)
        if row.get("run") == "avg" and (int(row["nodes"]), int(row["gpus_per_node"])) == table.layouts()[1]
    ]
    table.rows[i]["time"] = table.show(table.mean(table.layouts()[1]) * rng.choice([0.8, 1.2, 1.4]))
    return table, {i + 2}


def cell(name: str, change: Callable[[random.Random, float], float], decimals: int, first: int = 0) -> Plant:
    """A number of one row changed, in a table whose every row has it."""

    def plant(rng: random.Random) -> tuple[GeneratedTable, Lines]:
        table = clean(rng, runs=1)
        while name not in table.rows[0]:
            table = clean(rng, runs=1)
        i = rng.randrange(first, len(table.rows))
        table.rows[i][name] = f"{change(rng, float(table.rows[i][name])):.{decimals}f}"
        return table, {i + 2}

    return plant


def ranks_disagree(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    """Ranks of one run whose mean steps differ; those of the other sizes agree."""
    table = clean(rng, runs=3, average="", noise=0.0, show=seconds)
    of = table.of(*pick(table))
    table.leave_out("throughput", *table.extra.values())
    for i, row in enumerate(table.rows):
        row["run"] = f"rank {int(row['run']) - 1}"
        row["time"] = seconds(table.true[i] * (rng.choice([0.9, 1.08]) if i == of[1] else rng.uniform(1.0, 1.004)))
    return table, lines(of)


def runs_disagree(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    table = clean(rng, runs=3, average="", noise=0.02)
    of = table.of(*pick(table))
    table.leave_out("throughput", *table.extra.values())
    table.rows[of[1]]["time"] = table.show(table.true[of[1]] * rng.uniform(1.35, 1.9))
    return table, lines(of)
