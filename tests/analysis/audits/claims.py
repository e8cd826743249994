"""Faults of speedups and efficiencies, each planted in a table that is otherwise right."""

from __future__ import annotations

import random
from collections.abc import Callable

from .generated import Made, clean
from .planting import Lines, Plant, lines, pick


def claim(word: str, change: Callable[[random.Random, float], float]) -> Plant:
    """One printed speedup or efficiency of a run's layout changed, wherever it is printed."""

    def plant(rng: random.Random) -> tuple[Made, Lines]:
        made = clean(rng)
        while word not in made.extra or (made.shape == "in the node" and word == "efficiency"):
            made = clean(rng)
        name = made.extra[word]
        layout = pick(made)
        found = [
            i for i, row in enumerate(made.rows) if (int(row["nodes"]), int(row["gpus_per_node"])) == layout and row.get(name)
        ]
        shown = made.rows[found[0]][name]
        wrong = change(rng, float(shown.rstrip("%")))
        for i in found:
            made.rows[i][name] = f"{wrong:.2f}" if word == "speedup" else f"{wrong:.1f}%" if "%" in shown else f"{wrong:.3f}"
        return made, lines(found)

    return plant


def against(made: Made, layout: tuple[int, int], base: tuple[int, int]) -> float:
    return made.mean(base) / made.mean(layout)


def baselines_mixed(rng: random.Random) -> tuple[Made, Lines]:
    """Within the node against one GPU, beyond it against one node."""
    made = clean(rng, runs=1, shape="both")
    made.leave_out(*made.extra.values())
    for i, layout in enumerate(made.layouts()):
        made.rows[i]["speedup"] = f"{against(made, layout, (1, 1) if layout[0] == 1 else (1, 4)):.2f}"
    return made, set(range(2, 7))


def baseline_unnamed(rng: random.Random) -> tuple[Made, Lines]:
    made = clean(rng, runs=rng.choice([1, 3]), average="", shape="both")
    made.leave_out(*made.extra.values())
    marked = []
    for layout in ((1, 4), (2, 4), (4, 4)):
        for i in made.of(*layout):
            made.rows[i]["efficiency"] = f"{against(made, layout, (1, 4)) / layout[0]:.3f}"
            marked.append(i)
    return made, lines(marked)


def baseline_misnamed(rng: random.Random) -> tuple[Made, Lines]:
    made = clean(rng, runs=1, shape="both")
    made.leave_out(*made.extra.values())
    for i, layout in enumerate(made.layouts()):
        made.rows[i]["speedup vs 1 GPU"] = f"{against(made, layout, (1, 4)):.2f}"
    return made, set(range(2, 7))


def baseline_missing(rng: random.Random) -> tuple[Made, Lines]:
    """Speedups against a run that the table leaves out."""
    made = clean(rng, runs=1, shape=rng.choice(["both", "one GPU per node"]))
    made.leave_out(*made.extra.values())
    for i, layout in enumerate(made.layouts()):
        made.rows[i]["speedup"] = f"{against(made, layout, (1, 1)):.3f}"
    del made.rows[0]
    if made.shape == "both":
        del made.rows[:2]
    return made, set(range(2, len(made.rows) + 2))


def superlinear(rng: random.Random) -> tuple[Made, Lines]:
    """A baseline that something held up; speedups computed rightly from it."""
    made = clean(rng, runs=1, shape=rng.choice(["both", "one GPU per node", "in the node"]))
    made.true[0] *= rng.uniform(1.45, 2.0)
    made.rows[0]["time"] = made.show(made.true[0])
    made.leave_out("throughput", *made.extra.values())
    for i, layout in enumerate(made.layouts()):
        made.rows[i]["speedup"] = f"{against(made, layout, (1, 1)):.2f}"
    return made, {2}


def efficiency_dips(rng: random.Random) -> tuple[Made, Lines]:
    """A size in the middle that something held up; speedups computed rightly from its time."""
    made = clean(rng, runs=1, shape="one GPU per node", noise=0.01)
    i = rng.choice([1, 2, 3])
    made.true[i] *= rng.uniform(1.35, 1.8)
    made.rows[i]["time"] = made.show(made.true[i])
    made.leave_out("throughput", *made.extra.values())
    for j, layout in enumerate(made.layouts()):
        made.rows[j]["speedup"] = f"{against(made, layout, (1, 1)):.2f}"
    return made, lines([i])


def batch_changed(rng: random.Random) -> tuple[Made, Lines]:
    """Twice the batch per GPU from some size on; the samples, steps and global batch follow from it."""
    made = clean(rng, runs=1, shape="nodes")
    first = rng.randrange(1, len(made.rows))
    for row in made.rows[first:]:
        row["batch_per_gpu"] = str(2 * int(row["batch_per_gpu"]))
    made.leave_out("global_batch", "steps")
    return made, lines(list(range(first, len(made.rows))))
