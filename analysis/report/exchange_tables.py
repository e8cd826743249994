"""Tables of the exchange besides DDP's buckets: of sharded parameters, and what a profiler saw in loops of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from hpcddp.analysis.report.cells import milli, number_cell, text_cell
from hpcddp.analysis.report.table import Cell, Column, Table
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.util.wording import percent, unit
from hpcddp.core.attempt_records import ProfiledExchange, ShardedExchange
from hpcddp.core.point import Point

WAITS = (
    ("parameters before forward", "all_gather_forward_s"),
    ("before backward", "all_gather_backward_s"),
    ("gradients", "reduce_scatter_s"),
)


def sharding(runs: Sequence[Run]) -> Table:
    """A row per point with `comm: on`, medians over its runs; no rows where nothing is sharded, or nothing was marked."""
    measured = [(run.point, run) for run in runs if run.state == "counts" and run.point and run.sharded and run.step_ns]
    points = {point.id: point for point, _ in measured}
    ordered = sorted(points.values(), key=lambda point: (point.workload.parallel, point.ranks, point.layout.nodes, point.label))
    rows = [_row(point, [run for each, run in measured if each.id == point.id]) for point in ordered]
    methods = sorted({run.sharded.method for _, run in measured if run.sharded})
    gpu = unit(ordered[0].device) if ordered else "GPU"
    columns = (
        Column("nodes"),
        Column(f"{gpu}s/node", terminal=f"{gpu}s", within=" x {}"),
        Column("parallel", numeric=False),
        Column("point", numeric=False, terminal=None),
        Column("n"),
        Column("step ms"),
        *(
            Column(name, "waits for, ms", terminal=head)
            for (name, _), head in zip(WAITS, ("fwd ms", "bwd ms", "grads ms"), strict=True)
        ),
        Column("of the step", "waits for, ms", terminal="of step"),
    )
    note = f"Means over ranks and steps, medians over runs. Measured by {' and '.join(methods)}." if methods else ""
    return Table("sharding", "What ranks wait for where parameters are sharded", note, columns, rows)


def _row(point: Point, runs: Sequence[Run]) -> list[Cell]:
    found = [run.sharded for run in runs if run.sharded]
    waits_s = [median(getattr(each, name) for each in found) for _, name in WAITS]
    step_s = median(run.step_ns or 0.0 for run in runs) / 1e9
    share = median(_sum_s(each) / (run.step_ns or 1.0) * 1e9 for each, run in zip(found, runs, strict=True))
    return [
        number_cell(point.layout.nodes, str),
        number_cell(point.layout.gpus_per_node, str),
        text_cell(point.workload.parallel),
        text_cell(point.label),
        number_cell(len(runs), str),
        number_cell(step_s, milli),
        *(number_cell(seconds, milli) for seconds in waits_s),
        number_cell(share, percent),
    ]


def _sum_s(found: ShardedExchange) -> float:
    return sum(float(getattr(found, name)) for _, name in WAITS)


def profiled(runs: Sequence[Run]) -> Table:
    """A row per point with `comm: check`, medians over its runs; no rows where no profiler saw a collective."""
    measured = [(run.point, run.profiled) for run in runs if run.state == "counts" and run.point and run.profiled]
    points = {point.id: point for point, _ in measured}
    ordered = sorted(points.values(), key=lambda point: (point.ranks, point.layout.nodes, point.label))
    methods = sorted({found.method for _, found in measured})
    gpu = unit(ordered[0].device) if ordered else "GPU"
    head = "in profiled steps, ms"
    columns = (
        Column("nodes"),
        Column(f"{gpu}s/node", terminal=f"{gpu}s", within=" x {}"),
        Column("point", numeric=False, terminal=None),
        Column("n"),
        Column("step", head, terminal="step ms"),
        Column("collectives", head, terminal="coll. ms"),
        Column("of them exposed", head, terminal="exposed"),
        Column("by the step clock", head, terminal="by clock"),
        Column("exposed, of the step", head, terminal="of step"),
        Column("longest", numeric=False, terminal="most in"),
    )
    rows = [_profiled_row(point, [found for each, found in measured if each.id == point.id]) for point in ordered]
    note = f"Means over ranks and steps, medians over runs. Measured by {' and '.join(methods)}." if methods else ""
    return Table("profiled-exchange", "What a profiler saw of the exchange", note, columns, rows)


def _profiled_row(point: Point, found: Sequence[ProfiledExchange]) -> list[Cell]:
    clocks_s = [each.step_clock_exposed_s for each in found if each.step_clock_exposed_s is not None]
    return [
        number_cell(point.layout.nodes, str),
        number_cell(point.layout.gpus_per_node, str),
        text_cell(point.label),
        number_cell(len(found), str),
        number_cell(median(each.step_s for each in found), milli),
        number_cell(median(each.collectives_s for each in found), milli),
        number_cell(median(each.exposed_s for each in found), milli),
        number_cell(median(clocks_s) if clocks_s else None, milli),
        number_cell(median(each.exposed_s / each.step_s for each in found if each.step_s), percent),
        text_cell(max(found[0].by_operation_s, key=found[0].by_operation_s.__getitem__)),
    ]
