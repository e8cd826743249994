"""Faults of times and what else is measured, each planted in a table that is otherwise right."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable

from .generated import Made, clean
from .planting import Lines, Plant, lines, pick, seconds


def average_wrong(rng: random.Random) -> tuple[Made, Lines]:
    """Between the fastest and the slowest run, but not their mean."""
    made = clean(rng, runs=5, average="column", noise=0.03, show=seconds, shape="nodes")
    of = made.of(*pick(made))
    true = sorted(made.true[i] for i in of)
    for i in of:
        made.rows[i]["average"] = seconds(0.4 * true[-2] + 0.6 * true[-1])
    return made, lines(of)


def average_outside_rows(rng: random.Random) -> tuple[Made, Lines]:
    made = clean(rng, runs=3, average="row")
    (i,) = [
        i
        for i, row in enumerate(made.rows)
        if row.get("run") == "avg" and (int(row["nodes"]), int(row["gpus_per_node"])) == made.layouts()[1]
    ]
    made.rows[i]["time"] = made.show(made.mean(made.layouts()[1]) * rng.choice([0.8, 1.2, 1.4]))
    return made, {i + 2}


def average_is_median(rng: random.Random) -> tuple[Made, Lines]:
    made = clean(rng, runs=5, average="column", noise=0.01, show=seconds, shape="nodes")
    layout = pick(made)
    of = made.of(*layout)
    slowest = max(of, key=lambda i: made.true[i])
    made.true[slowest] *= 1.1
    made.rows[slowest]["time"] = seconds(made.true[slowest])
    for i in of:
        made.rows[i].pop("throughput", None)
        made.rows[i]["average"] = seconds(statistics.median(made.true[j] for j in of))
        for name in made.extra.values():
            made.rows[i].pop(name, None)
    return made, lines(of)


def cell(name: str, change: Callable[[random.Random, float], float], decimals: int, first: int = 0) -> Plant:
    """A number of one row changed, in a table whose every row has it."""

    def plant(rng: random.Random) -> tuple[Made, Lines]:
        made = clean(rng, runs=1)
        while name not in made.rows[0]:
            made = clean(rng, runs=1)
        i = rng.randrange(first, len(made.rows))
        made.rows[i][name] = f"{change(rng, float(made.rows[i][name])):.{decimals}f}"
        return made, {i + 2}

    return plant


def parts_exceed_total(rng: random.Random) -> tuple[Made, Lines]:
    made = clean(rng, runs=1, parts=True)
    i = rng.randrange(len(made.rows))
    made.rows[i]["comm"] = made.show(made.true[i] * rng.uniform(0.6, 1.4))
    return made, {i + 2}


def runs_disagree(rng: random.Random) -> tuple[Made, Lines]:
    made = clean(rng, runs=3, average="", noise=0.02)
    of = made.of(*pick(made))
    made.leave_out("throughput", *made.extra.values())
    made.rows[of[1]]["time"] = made.show(made.true[of[1]] * rng.uniform(1.35, 1.9))
    return made, lines(of)


def spread_exceeds_effect(rng: random.Random) -> tuple[Made, Lines]:
    """Three runs each; the second size is 3-6 % faster on average, and the runs of both overlap."""
    made = clean(rng, runs=3, average="column", shape="nodes", noise=0, show=seconds)
    base, layout = made.layouts()[:2]
    gain = rng.uniform(1.03, 1.06)
    for of, middle in ((made.of(*base), made.mean(base)), (made.of(*layout), made.mean(base) / gain)):
        for i, factor in zip(of, (0.93, 1.0, 1.07), strict=True):
            made.true[i] = middle * factor
            made.rows[i].pop("throughput", None)
            made.rows[i].update(time=seconds(made.true[i]), average=seconds(middle))
    del made.rows[6:], made.true[6:]
    made.leave_out(*made.extra.values())
    for i, row in enumerate(made.rows):
        row["speedup"] = f"{1.0 if i < 3 else gain:.2f}"
    return made, {5, 6, 7}


def times_repeated(rng: random.Random) -> tuple[Made, Lines]:
    made = clean(rng, runs=3, average="", shape="nodes", show=seconds)
    before, after = made.layouts()[1:3]
    for i, j in zip(made.of(*before), made.of(*after), strict=True):
        made.rows[j]["time"] = made.rows[i]["time"]
    made.leave_out("throughput", *made.extra.values())
    return made, lines(made.of(*after))


def run_repeated(rng: random.Random) -> tuple[Made, Lines]:
    made = clean(rng, runs=3, average="")
    i = rng.randrange(len(made.rows))
    made.rows.append({key: text for key, text in made.rows[i].items() if key not in made.extra.values()})
    made.leave_out(*made.extra.values())
    return made, {i + 2, len(made.rows) + 1}


def runs_miscounted(rng: random.Random) -> tuple[Made, Lines]:
    made = clean(rng, runs=3, average="column")
    said = rng.choice(["5", "10"])
    for row in made.rows:
        row["n"] = "3"
    of = made.of(*pick(made))
    for i in of:
        made.rows[i]["n"] = said
    return made, lines(of)


def scaling_kind_wrong(rng: random.Random) -> tuple[Made, Lines]:
    made = clean(rng, runs=1)
    for row in made.rows:
        row.update(samples="50000", scaling="weak", time=row["time"])
        row.pop("steps", None)
        row.pop("throughput", None)
    return made, set(range(2, len(made.rows) + 2))


def bandwidth_impossible(rng: random.Random) -> tuple[Made, Lines]:
    """A bandwidth that is of another unit, or of nothing, in one row."""
    made = clean(rng, runs=1, shape="one GPU per node", show=seconds, parts=True)
    megabytes = rng.uniform(40, 400)
    for i, row in enumerate(made.rows):
        row["steps"] = str(int(row.get("steps", "500")))
        size = int(row["nodes"]) * int(row["gpus_per_node"])
        row["steps"] = str(-(-50_000 // (int(row["batch_per_gpu"]) * size)))
        row["samples"] = "50000"
        row.pop("throughput", None)
        if i:
            bandwidth = megabytes / 1e3 * int(row["steps"]) * 2 * (size - 1) / size / float(row["comm"])
            row["bandwidth"] = f"{bandwidth:.5f}"
    i = rng.randrange(1, len(made.rows))
    made.rows[i]["bandwidth"] = f"{float(made.rows[i]['bandwidth']) * rng.choice([2, 8, 1000]):.5f}"
    return made, {i + 2}
