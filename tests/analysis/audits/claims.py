"""Faults of speedups and efficiencies, each planted in a table that is otherwise right."""

from __future__ import annotations

import random
from collections.abc import Callable

from .generated import GeneratedTable, clean
from .planting import Lines, Plant, lines, pick


def claim(word: str, change: Callable[[random.Random, float], float]) -> Plant:
    """One printed speedup or efficiency of a run's layout changed, wherever it is printed."""

    def plant(rng: random.Random) -> tuple[GeneratedTable, Lines]:
        table = clean(rng)
        while word not in table.extra or (table.shape == "in the node" and word == "efficiency"):
            table = clean(rng)
        name = table.extra[word]
        layout = pick(table)
        found = [
            i for i, row in enumerate(table.rows) if (int(row["nodes"]), int(row["gpus_per_node"])) == layout and row.get(name)
        ]
        shown = table.rows[found[0]][name]
        wrong = change(rng, float(shown.rstrip("%")))
        for i in found:
            table.rows[i][name] = f"{wrong:.2f}" if word == "speedup" else f"{wrong:.1f}%" if "%" in shown else f"{wrong:.3f}"
        return table, lines(found)

    return plant


def against(table: GeneratedTable, layout: tuple[int, int], base: tuple[int, int]) -> float:
    return table.mean(base) / table.mean(layout)


def baselines_mixed(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    """Within the node against one GPU, beyond it against one node."""
    table = clean(rng, runs=1, shape="both")
    table.leave_out(*table.extra.values())
    for i, layout in enumerate(table.layouts()):
        table.rows[i]["speedup"] = f"{against(table, layout, (1, 1) if layout[0] == 1 else (1, 4)):.2f}"
    return table, set(range(2, 7))


def baseline_unnamed(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    table = clean(rng, runs=rng.choice([1, 3]), average="", shape="both")
    table.leave_out(*table.extra.values())
    marked = []
    for layout in ((1, 4), (2, 4), (4, 4)):
        for i in table.of(*layout):
            table.rows[i]["efficiency"] = f"{against(table, layout, (1, 4)) / layout[0]:.3f}"
            marked.append(i)
    return table, lines(marked)


def baseline_misnamed(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    table = clean(rng, runs=1, shape="both")
    table.leave_out(*table.extra.values())
    for i, layout in enumerate(table.layouts()):
        table.rows[i]["speedup vs 1 GPU"] = f"{against(table, layout, (1, 4)):.2f}"
    return table, set(range(2, 7))


def superlinear(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    """A baseline that something held up; speedups computed rightly from it."""
    table = clean(rng, runs=1, shape=rng.choice(["both", "one GPU per node", "in the node"]))
    table.true[0] *= rng.uniform(1.45, 2.0)
    table.rows[0]["time"] = table.show(table.true[0])
    table.leave_out("throughput", *table.extra.values())
    for i, layout in enumerate(table.layouts()):
        table.rows[i]["speedup"] = f"{against(table, layout, (1, 1)):.2f}"
    return table, {2}


def batch_changed(rng: random.Random) -> tuple[GeneratedTable, Lines]:
    """Twice the batch per GPU from some size on; the samples, steps and global batch follow from it."""
    table = clean(rng, runs=1, shape="nodes")
    first = rng.randrange(1, len(table.rows))
    for row in table.rows[first:]:
        row["batch_per_gpu"] = str(2 * int(row["batch_per_gpu"]))
    table.leave_out("global_batch", "steps")
    return table, lines(list(range(first, len(table.rows))))
