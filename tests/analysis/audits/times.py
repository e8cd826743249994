"""Faults of times and what else is measured, each planted in a table that is otherwise right."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable

from .generated import GeneratedTable, clean
from .planting import Lines, Plant, lines, pick, seconds


def average_wrong(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    """Between the fastest and the slowest run, but not their mean."""
    table = clean(rng, runs=5, average="column", noise=0.03, show=seconds, shape="nodes")
    of = table.of(*pick(table))
    true = sorted(table.true[i] for i in of)
    for i in of:
        table.rows[i]["average"] = seconds(0.4 * true[-2] + 0.6 * true[-1])
    return table, lines(of)


def average_outside_rows(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    table = clean(rng, runs=3, average="row")
    (i,) = [
        i
        for i, row in enumerate(table.rows)
        if row.get("run") == "avg" and (int(row["nodes"]), int(row["gpus_per_node"])) == table.layouts()[1]
    ]
    table.rows[i]["time"] = table.show(table.mean(table.layouts()[1]) * rng.choice([0.8, 1.2, 1.4]))
    return table, {i + 2}


def average_is_median(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    table = clean(rng, runs=5, average="column", noise=0.01, show=seconds, shape="nodes")
    layout = pick(table)
    of = table.of(*layout)
    slowest = max(of, key=lambda i: table.true[i])
    table.true[slowest] *= 1.1
    table.rows[slowest]["time"] = seconds(table.true[slowest])
    for i in of:
        table.rows[i].pop("throughput", None)
        table.rows[i]["average"] = seconds(statistics.median(table.true[j] for j in of))
        for name in table.extra.values():
            table.rows[i].pop(name, None)
    return table, lines(of)


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


def parts_exceed_total(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    table = clean(rng, runs=1, parts=True)
    i = rng.randrange(len(table.rows))
    table.rows[i]["comm"] = table.show(table.true[i] * rng.uniform(0.6, 1.4))
    return table, {i + 2}


def ranks_disagree(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    """Ranks of one run whose mean steps differ; those of the other sizes agree."""
    table = clean(rng, runs=3, average="", noise=0.0, show=seconds, parts=False)
    of = table.of(*pick(table))
    table.leave_out("throughput", *table.extra.values())
    for i, row in enumerate(table.rows):
        row["run"] = f"rank {int(row['run']) - 1}"
        row["time"] = seconds(table.true[i] * (rng.choice([0.9, 1.08]) if i == of[1] else rng.uniform(1.0, 1.004)))
    return table, lines(of)


def utilization_contradicts(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    """A GPU that is busy in all rows but waits for data in one."""
    table = clean(rng, runs=1, parts=False)
    i = rng.randrange(len(table.rows))
    for j, row in enumerate(table.rows):
        row["data wait"] = table.show(table.true[j] * (rng.uniform(0.4, 0.9) if j == i else rng.uniform(0.01, 0.05)))
        row["GPU util (%)"] = f"{rng.uniform(80, 95):.0f}"
    return table, {i + 2}


def runs_disagree(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    table = clean(rng, runs=3, average="", noise=0.02)
    of = table.of(*pick(table))
    table.leave_out("throughput", *table.extra.values())
    table.rows[of[1]]["time"] = table.show(table.true[of[1]] * rng.uniform(1.35, 1.9))
    return table, lines(of)


def spread_exceeds_effect(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    """Three runs each; the second size is 3-6 % faster on average, and the runs of both overlap."""
    table = clean(rng, runs=3, average="column", shape="nodes", noise=0, show=seconds)
    base, layout = table.layouts()[:2]
    gain = rng.uniform(1.03, 1.06)
    for of, middle in ((table.of(*base), table.mean(base)), (table.of(*layout), table.mean(base) / gain)):
        for i, factor in zip(of, (0.93, 1.0, 1.07), strict=True):
            table.true[i] = middle * factor
            table.rows[i].pop("throughput", None)
            table.rows[i].update(time=seconds(table.true[i]), average=seconds(middle))
    del table.rows[6:], table.true[6:]
    table.leave_out(*table.extra.values())
    for i, row in enumerate(table.rows):
        row["speedup"] = f"{1.0 if i < 3 else gain:.2f}"
    return table, {5, 6, 7}


def scaling_kind_wrong(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    table = clean(rng, runs=1)
    for row in table.rows:
        row.update(samples="50000", scaling="weak", time=row["time"])
        row.pop("steps", None)
        row.pop("throughput", None)
    return table, set(range(2, len(table.rows) + 2))


def bandwidth_impossible(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    """A bandwidth that is of another unit, or of nothing, in one row."""
    table = clean(rng, runs=1, shape="one GPU per node", show=seconds, parts=True)
    megabytes = rng.uniform(40, 400)
    for i, row in enumerate(table.rows):
        row["steps"] = str(int(row.get("steps", "500")))
        size = int(row["nodes"]) * int(row["gpus_per_node"])
        row["steps"] = str(-(-50_000 // (int(row["batch_per_gpu"]) * size)))
        row["samples"] = "50000"
        row.pop("throughput", None)
        if i:
            bandwidth = megabytes / 1e3 * int(row["steps"]) * 2 * (size - 1) / size / float(row["comm"])
            row["bandwidth"] = f"{bandwidth:.5f}"
    i = rng.randrange(1, len(table.rows))
    table.rows[i]["bandwidth"] = f"{float(table.rows[i]['bandwidth']) * rng.choice([2, 8, 1000]):.5f}"
    return table, {i + 2}
