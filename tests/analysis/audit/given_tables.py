"""Tables of results as people publish them, right in every digit they show, and the same with one fault planted.

Times follow a given efficiency with noise of 0-3 %; each number is computed from the unrounded ones and then printed.
"""

from __future__ import annotations

import csv
import itertools
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SAMPLES = {"mnist": 60_000, "cifar10": 50_000, "imagenet": 1_281_167}
V100_NODES = [f"gn{i:02}" for i in range(1, 7)]
SHAPES = {
    "both": [(1, 1), (1, 2), (1, 4), (2, 4), (4, 4)],
    "one GPU per node": [(1, 1), (2, 1), (3, 1), (4, 1), (6, 1)],
    "in the node": [(1, 1), (1, 2), (1, 3), (1, 4)],
    "nodes": [(1, 4), (2, 4), (4, 4), (6, 4)],
}

Cells = dict[str, str]


@dataclass
class GeneratedTable:
    """A table in the making: `rows` hold printed cells, `true` the unrounded time of each."""

    rng: random.Random
    rows: list[Cells]
    true: list[float]
    shape: str
    runs: int
    show: Callable[[float], str]
    extra: dict[str, str] = field(default_factory=dict)

    def all_of(self, layout: tuple[int, int]) -> list[int]:
        """Indices of the rows of a layout."""
        return [i for i, row in enumerate(self.rows) if (int(row["nodes"]), int(row["gpus_per_node"])) == layout]

    def of(self, layout: tuple[int, int]) -> list[int]:
        """Without averages."""
        return [i for i in self.all_of(layout) if self.rows[i].get("run") != "avg"]

    def layouts(self) -> list[tuple[int, int]]:
        return list(dict.fromkeys((int(row["nodes"]), int(row["gpus_per_node"])) for row in self.rows))

    def mean(self, layout: tuple[int, int]) -> float:
        return statistics.fmean(self.true[i] for i in self.of(layout))

    def leave_out(self, *columns: str) -> None:
        for row, name in itertools.product(self.rows, columns):
            row.pop(name, None)

    def write(self, file: Path) -> Path:
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        with file.open("w", newline="", encoding="utf-8") as out:
            writer = csv.DictWriter(out, columns, restval="")
            writer.writeheader()
            writer.writerows(self.rows)
        return file


def clean(rng: random.Random, **fixed: Any) -> GeneratedTable:
    """A table without a fault; `fixed` says what it must be like: shape, runs, average, decimals, noise."""
    shape = fixed.get("shape", rng.choice(list(SHAPES)))
    runs = fixed.get("runs", rng.choice([1, 1, 3, 5]))
    name = rng.choice(list(SAMPLES))
    batch = rng.choice([32, 64, 100, 256])
    noise = fixed.get("noise", rng.uniform(0, 0.03))
    table = GeneratedTable(rng, [], [], shape, runs, fixed.get("show") or _printer(rng))
    work_s, share, first = 10 ** rng.uniform(3, 4.3), 1.0 + rng.choice([0, 0, 0, 0.02]), SHAPES[shape][0]
    for nodes, gpus in SHAPES[shape]:
        size = nodes * gpus
        for run in range(runs):
            ideal = work_s / size if size > first[0] * first[1] else work_s / (first[0] * first[1])
            true = ideal / share * (1 + rng.gauss(0, noise))
            cells = {"dataset": name, "nodes": str(nodes), "gpus_per_node": str(gpus), "batch_per_gpu": str(batch)}
            cells["node_list"] = _node_list(rng, nodes)
            if runs > 1:
                cells["run"] = str(run + 1)
            cells["time"] = table.show(true)
            table.rows.append(cells)
            table.true.append(true)
        share *= 1 - rng.uniform(0, 0.1)
    _counts(table, SAMPLES[name], batch)
    _averages(table, fixed.get("average", rng.choice(["row", ""])))
    _claims(table)
    return table


def _printer(rng: random.Random) -> Callable[[float], str]:
    kind = rng.choice(["clock", "decimals", "minutes", "cut"])
    decimals = rng.choice([1, 2, 4])
    if kind == "clock":
        return lambda value: f"{int(value) // 3600}:{int(value) // 60 % 60:02}:{value % 60 // 1:02.0f}"
    if kind == "minutes":
        return lambda value: f"{int(value) // 60}m{value % 60 // 1:02.0f}s"
    if kind == "cut":
        return lambda value: f"{int(value * 100) / 100:.2f}"
    return lambda value: f"{value:.{decimals}f}"


def _node_list(rng: random.Random, count: int) -> str:
    first = rng.randint(0, 6 - count)
    names = V100_NODES[first : first + count]
    return names[0] if count == 1 else f"gn[{names[0][2:]}-{names[-1][2:]}]"


def _counts(table: GeneratedTable, samples: int, batch: int) -> None:
    """Some tables say samples, steps, the global batch, all GPUs, throughput or the GPU type."""
    chosen = {name for name in ("samples", "steps", "global_batch", "gpus", "throughput", "gpu_type") if table.rng.random() < 0.4}
    for row, true in zip(table.rows, table.true, strict=True):
        size = int(row["nodes"]) * int(row["gpus_per_node"])
        cells = {
            "samples": str(samples),
            "steps": str(-(-samples // (batch * size))),
            "global_batch": str(batch * size),
            "gpus": str(size),
            "throughput": f"{samples / true * (1 + table.rng.gauss(0, 0.003)):.1f}",
            "gpu_type": "V100-32GB",
        }
        row.update({name: cells[name] for name in cells if name in chosen})


def _averages(table: GeneratedTable, kind: str) -> None:
    """A row for each layout, behind its runs."""
    if table.runs == 1 or not kind:
        return
    for layout in table.layouts():
        of = table.of(layout)
        labels = {key: table.rows[of[0]][key] for key in ("dataset", "nodes", "gpus_per_node", "batch_per_gpu")}
        table.rows.insert(of[-1] + 1, {**labels, "run": "avg", "time": table.show(table.mean(layout))})
        table.true.insert(of[-1] + 1, 0.0)


def _claims(table: GeneratedTable) -> None:
    """Speedup and efficiency of the means, on the row that holds the average, or on every run's row."""
    base = table.layouts()[0]
    percent, named = table.rng.random() < 0.4, table.rng.random() < 0.4
    which = table.rng.choice([("speedup",), ("efficiency",), ("speedup", "efficiency")])
    words = "1 GPU" if base == (1, 1) else "1 node"
    names = {word: f"{word} vs {words}" if named else word for word in which}
    table.extra = names
    for layout in table.layouts():
        speedup = table.mean(base) / table.mean(layout)
        share = speedup / (layout[0] * layout[1] / (base[0] * base[1]))
        shown = {"speedup": f"{speedup:.2f}", "efficiency": f"{100 * share:.1f}%" if percent else f"{share:.3f}"}
        if layout == base and table.rng.random() < 0.5:
            shown = {"speedup": "1", "efficiency": "100%" if percent else "1"}
        rows = table.all_of(layout)
        summary = [i for i in rows if table.rows[i].get("run") == "avg"]
        for i in summary or rows:
            table.rows[i].update({names[word]: shown[word] for word in which})


def clean_weak(rng: random.Random) -> GeneratedTable:
    """Steps of a fixed batch per GPU: times hardly change, throughput grows; speedups are of throughput."""
    table = GeneratedTable(rng, [], [], "weak", rng.choice([1, 3]), lambda value: f"{value:.4f}")
    step_s, batch, share = rng.uniform(0.05, 0.9), rng.choice([32, 128]), 1.0
    with_time, noise, percent = rng.random() < 0.5, rng.uniform(0, 0.03), rng.random() < 0.5
    rates: dict[int, list[float]] = {}
    for nodes in (1, 2, 4, 8, 16):
        for run in range(table.runs):
            true = step_s / share * (1 + rng.gauss(0, noise))
            rates.setdefault(nodes, []).append(batch * 4 * nodes / true)
            cells = {"nodes": str(nodes), "gpus": str(4 * nodes), "batch size per GPU": str(batch)}
            cells["img/s"] = f"{rates[nodes][-1]:.1f}"
            table.rows.append(cells | ({"step time (s)": f"{true:.4f}"} if with_time else {}) | {"run": str(run + 1)})
            table.true.append(true)
        share *= 1 - rng.uniform(0, 0.08)
        speedup = statistics.fmean(rates[nodes]) / statistics.fmean(rates[1])
        for row in table.rows[-table.runs :]:
            row["speedup"] = f"{speedup:.2f}"
            of_nodes = speedup / nodes
            row["efficiency (%)" if percent else "efficiency"] = f"{100 * of_nodes:.1f}" if percent else f"{of_nodes:.3f}"
    return table


Planted = tuple[GeneratedTable, set[int]]
"""A table with a fault, and the lines it is in."""

Plant = Callable[[random.Random], Planted]


def seconds(value: float) -> str:
    return f"{value:.3f}"


def lines(indices: list[int]) -> set[int]:
    """Of the file: the header is line 1."""
    return {i + 2 for i in indices}


def pick(table: GeneratedTable, but_first: bool = True) -> tuple[int, int]:
    return table.rng.choice(table.layouts()[1 if but_first else 0 :])


def shifted(low: float, high: float) -> Callable[[random.Random, float], float]:
    """A number off by so much, up or down."""
    return lambda rng, value: value * rng.uniform(low, high) ** rng.choice([-1, 1])


def claim(word: str, change: Callable[[random.Random, float], float]) -> Plant:
    """One printed speedup or efficiency of a run's layout changed, wherever it is printed."""

    def plant(rng: random.Random) -> Planted:
        table = clean(rng)
        while word not in table.extra or (table.shape == "in the node" and word == "efficiency"):
            table = clean(rng)
        name = table.extra[word]
        layout = pick(table)
        found = [i for i in table.all_of(layout) if table.rows[i].get(name)]
        shown = table.rows[found[0]][name]
        wrong = change(rng, float(shown.rstrip("%")))
        for i in found:
            table.rows[i][name] = f"{wrong:.2f}" if word == "speedup" else f"{wrong:.1f}%" if "%" in shown else f"{wrong:.3f}"
        return table, lines(found)

    return plant


def against(table: GeneratedTable, layout: tuple[int, int], base: tuple[int, int]) -> float:
    return table.mean(base) / table.mean(layout)


def baselines_mixed(rng: random.Random) -> Planted:
    """Within the node against one GPU, beyond it against one node."""
    table = clean(rng, runs=1, shape="both")
    table.leave_out(*table.extra.values())
    for i, layout in enumerate(table.layouts()):
        table.rows[i]["speedup"] = f"{against(table, layout, (1, 1) if layout[0] == 1 else (1, 4)):.2f}"
    return table, set(range(2, 7))


def baseline_unnamed(rng: random.Random) -> Planted:
    table = clean(rng, runs=rng.choice([1, 3]), average="", shape="both")
    table.leave_out(*table.extra.values())
    marked = []
    for layout in ((1, 4), (2, 4), (4, 4)):
        for i in table.of(layout):
            table.rows[i]["efficiency"] = f"{against(table, layout, (1, 4)) / layout[0]:.3f}"
            marked.append(i)
    return table, lines(marked)


def baseline_misnamed(rng: random.Random) -> Planted:
    table = clean(rng, runs=1, shape="both")
    table.leave_out(*table.extra.values())
    for i, layout in enumerate(table.layouts()):
        table.rows[i]["speedup vs 1 GPU"] = f"{against(table, layout, (1, 4)):.2f}"
    return table, set(range(2, 7))


def superlinear(rng: random.Random) -> Planted:
    """A baseline that something held up; speedups computed rightly from it."""
    table = clean(rng, runs=1, shape=rng.choice(["both", "one GPU per node", "in the node"]))
    table.true[0] *= rng.uniform(1.45, 2.0)
    table.rows[0]["time"] = table.show(table.true[0])
    table.leave_out("throughput", *table.extra.values())
    for i, layout in enumerate(table.layouts()):
        table.rows[i]["speedup"] = f"{against(table, layout, (1, 1)):.2f}"
    return table, {2}


def batch_changed(rng: random.Random) -> Planted:
    """Twice the batch per GPU from some size on; the samples, steps and global batch follow from it."""
    table = clean(rng, runs=1, shape="nodes")
    first = rng.randrange(1, len(table.rows))
    for row in table.rows[first:]:
        row["batch_per_gpu"] = str(2 * int(row["batch_per_gpu"]))
    table.leave_out("global_batch", "steps")
    return table, lines(list(range(first, len(table.rows))))


def gpu_types_pooled(rng: random.Random) -> Planted:
    table = clean(rng, runs=3, average="row")
    of = table.of(pick(table))
    for row in table.rows:
        if row.get("run") != "avg":
            row["gpu_type"] = "V100-32GB"
    table.rows[of[-1]]["gpu_type"] = "A40-48GB"
    table.rows[of[-1]]["node_list"] = ""
    return table, lines(of)


def gpu_types_mixed_in_row(rng: random.Random) -> Planted:
    table = clean(rng, runs=1, shape="one GPU per node")
    i = table.of(pick(table))[0]
    for row in table.rows:
        row["gpu_type"] = "V100"
    table.rows[i]["gpu_type"] = rng.choice(["V100 + A40", "V100/A100"])
    return table, {i + 2}


def average_wrong(rng: random.Random) -> Planted:
    """Between the fastest and the slowest run, but not their mean."""
    table = clean(rng, runs=5, average="row", noise=0.03, show=seconds, shape="nodes")
    of = table.of(pick(table))
    true = sorted(table.true[i] for i in of)
    i = of[-1] + 1
    table.rows[i]["time"] = seconds(0.4 * true[-2] + 0.6 * true[-1])
    table.leave_out(*table.extra.values())
    return table, {i + 2}


def average_outside_rows(rng: random.Random) -> Planted:
    table = clean(rng, runs=3, average="row")
    layout = table.layouts()[1]
    (i,) = (i for i in table.all_of(layout) if table.rows[i].get("run") == "avg")
    table.rows[i]["time"] = table.show(table.mean(layout) * rng.choice([0.8, 1.2, 1.4]))
    return table, {i + 2}


def cell(name: str, change: Callable[[random.Random, float], float], decimals: int, first: int = 0) -> Plant:
    """A number of one row changed, in a table whose every row has it."""

    def plant(rng: random.Random) -> Planted:
        table = clean(rng, runs=1)
        while name not in table.rows[0]:
            table = clean(rng, runs=1)
        i = rng.randrange(first, len(table.rows))
        table.rows[i][name] = f"{change(rng, float(table.rows[i][name])):.{decimals}f}"
        return table, {i + 2}

    return plant


def ranks_disagree(rng: random.Random) -> Planted:
    """Ranks of one run whose mean steps differ; those of the other sizes agree."""
    table = clean(rng, runs=3, average="", noise=0.0, show=seconds)
    of = table.of(pick(table))
    table.leave_out("throughput", *table.extra.values())
    for i, row in enumerate(table.rows):
        row["run"] = f"rank {int(row['run']) - 1}"
        row["time"] = seconds(table.true[i] * (rng.choice([0.9, 1.08]) if i == of[1] else rng.uniform(1.0, 1.004)))
    return table, lines(of)


def runs_disagree(rng: random.Random) -> Planted:
    table = clean(rng, runs=3, average="", noise=0.02)
    of = table.of(pick(table))
    table.leave_out("throughput", *table.extra.values())
    table.rows[of[1]]["time"] = table.show(table.true[of[1]] * rng.uniform(1.35, 1.9))
    return table, lines(of)


FAULTS: dict[str, Plant] = {
    "average_wrong": average_wrong,
    "average_outside_rows": average_outside_rows,
    "gpu_types_pooled": gpu_types_pooled,
    "gpu_types_mixed_in_row": gpu_types_mixed_in_row,
    "speedup_wrong": claim("speedup", shifted(1.06, 1.5)),
    "efficiency_wrong": claim("efficiency", shifted(1.06, 1.3)),
    "baselines_mixed": baselines_mixed,
    "baseline_unnamed": baseline_unnamed,
    "baseline_misnamed": baseline_misnamed,
    "superlinear": superlinear,
    "batch_changed": batch_changed,
    "throughput_wrong": cell("throughput", shifted(1.1, 2.0), 1),
    "steps_wrong": cell("steps", lambda rng, value: value + rng.choice([-1, 1, 40]) * max(1, value // 50), 0),
    "ranks_disagree": ranks_disagree,
    "runs_disagree": runs_disagree,
}
"""Class -> a table with such a fault, and the lines it is in."""
