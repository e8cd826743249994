"""Tables of what a step is made of: its parts; the exchange of DDP, of sharded parameters, in loops of the user's own; limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import pandas as pd

from hpcddp.analysis.report.table import (
    Cell,
    Column,
    Spec,
    Table,
    giga,
    milli,
    number_cell,
    number_of,
    point_columns,
    size_columns,
    table_of,
    unit_of,
    words_of,
)
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.comm_bench import OPS
from hpcddp.analysis.study.frames import NAMES, hidden_parts, shown_parts, step_total_s
from hpcddp.analysis.study.series import Apart
from hpcddp.analysis.util.wording import percent, quantity, unit
from hpcddp.core.point import Point
from hpcddp.core.text import message_size

TERMINAL_HEADS = {
    "data_wait": "data",
    "h2d_exposed": "copy",
    "forward": "fwd",
    "backward": "bwd",
    "comm_exposed": "comm",
    "transfer": "exchange",
    "peer_wait": "wait",
    "optimizer": "opt",
    "other": "other",
    "unaccounted": "unacc",
    "h2d_hidden": "(copy)",
    "comm_hidden": "(comm)",
}
"""Of the breakdown's columns; what is hidden behind other parts is in brackets."""

HIDDEN = {"h2d_hidden": "copy", "comm_hidden": "communication"}


def breakdown(points: pd.DataFrame, apart: Apart) -> Table:
    """The step, and each part's share of it."""
    step_s = step_total_s(points)
    specs = [
        *point_columns(points, apart),
        (Column("n", terminal=None), number_of("breakdown_n", str)),
        (Column("step ms", always=True), number_of("step_s", milli)),
        (Column("with hook, ms", terminal="hook ms"), number_of("step_hook_s", milli)),
        *_shares(shown_parts(points), step_s, NAMES, "% of the step"),
        *_shares(hidden_parts(points), step_s, HIDDEN, "hidden, %"),
    ]
    note = "Percent of the step, means over ranks and steps of the median run of n, with the communication hook if any."
    return table_of("breakdown", "Step breakdown", note, specs, points)


def _shares(parts: pd.DataFrame, step_s: pd.Series[Any], names: Mapping[str, str], group: str) -> Iterator[Spec]:
    shares = parts.div(step_s, axis=0)
    for part in parts:
        column = Column(names[str(part)], group, terminal=TERMINAL_HEADS[str(part)], always=True)
        yield column, lambda row, part=part: number_cell(shares.loc[row.name, part], percent_number)  # type: ignore[misc]


def percent_number(share: float) -> str:
    """Without the sign: `39`; noise below nothing is `0`."""
    return f"{100 * share:.0f}".replace("-0", "0")


def exchange_table(points: pd.DataFrame, apart: Apart) -> Table:
    """The gradient all-reduce, of layouts with the communication hook. A single rank's go nowhere."""
    points = points[points["step_bytes"].notna() & (points["ranks"] > 1)]
    specs = [
        *point_columns(points, apart),
        (Column("MB per step", terminal="MB/step"), number_of("step_bytes", lambda size: quantity(size / 1e6))),
        (Column("overlapped, ms", terminal="overlapped ms", always=True), number_of("comm_hidden_s", milli)),
        (Column("exchange, ms", terminal="exchange ms", always=True), number_of("transfer_s", milli)),
        (Column("sync wait, ms", terminal="sync wait ms", always=True), number_of("peer_wait_s", milli)),
        (Column("overlapped", terminal="overlap", always=True), number_of("comm_overlap", percent)),
        (Column("algorithm", "GB/s", terminal="alg GB/s", always=True), number_of("algbw_bytes_per_s", giga)),
        (Column("bus", "GB/s", terminal="bus GB/s", always=True), number_of("busbw_bytes_per_s", giga)),
    ]
    note = "Time overlapped, exposed, and waiting for other ranks. Bandwidth while in flight; bus as nccl-tests defines it."
    return table_of("exchange", "Gradient all-reduce", note, specs, points)


def _by_point(runs: Sequence[Run], recorded: Callable[[Run], Any]) -> list[tuple[Point, list[tuple[Run, Any]]]]:
    """Runs that count with what is recorded of them, by their points, the smallest first."""
    found: dict[str, tuple[Point, list[tuple[Run, Any]]]] = {}
    for run in runs:
        if run.state == "counts" and run.point and (each := recorded(run)):
            found.setdefault(run.point.id, (run.point, []))[1].append((run, each))
    return sorted(found.values(), key=lambda pair: (pair[0].ranks, pair[0].layout.nodes, pair[0].label))


def _measured_table(
    name: str, title: str, measured: list[tuple[Point, list[tuple[Run, Any]]]], specs: list[Spec], rows: list[dict[str, Any]]
) -> Table:
    """A row per point below its size; what measured it is in the note."""
    gpu = unit(measured[0][0].device) if measured else unit("cuda")
    for (point, found), row in zip(measured, rows, strict=True):
        row |= {"nodes": point.layout.nodes, "gpus_per_node": point.layout.gpus_per_node, "label": point.label, "n": len(found)}
    methods = sorted({each.method for _, found in measured for _, each in found})
    note = f"Means over ranks and steps, medians over runs. Measured by {' and '.join(methods)}." if methods else ""
    return table_of(name, title, note, [*size_columns(gpu)[:2], *specs], rows)


OF_POINT: list[Spec] = [(Column("point", numeric=False, terminal=None), words_of("label")), (Column("n"), number_of("n", str))]

WAITS = (
    ("parameters before forward", "fwd ms", "all_gather_forward_s"),
    ("before backward", "bwd ms", "all_gather_backward_s"),
    ("gradients", "grads ms", "reduce_scatter_s"),
)
"""Of a step with sharded parameters: in words, on the terminal, and in its record."""


def sharding_table(runs: Sequence[Run]) -> Table:
    """A row per point with `comm: on`, medians over its runs; no rows where nothing is sharded, or nothing was marked."""
    measured = _by_point(runs, lambda run: run.sharded if run.step_ns else None)
    measured.sort(key=lambda pair: pair[0].workload.parallel)
    specs: list[Spec] = [
        (Column("parallel", numeric=False), words_of("parallel")),
        *OF_POINT,
        (Column("step ms"), number_of("step_s", milli)),
        *((Column(name, "waits for, ms", terminal=head), number_of(key, milli)) for name, head, key in WAITS),
        (Column("of the step", "waits for, ms", terminal="of step"), number_of("share", percent)),
    ]
    rows = [
        {
            "parallel": point.workload.parallel,
            "step_s": median(run.step_ns or 0.0 for run, _ in found) / 1e9,
            **{key: median(getattr(each, key) for _, each in found) for *_, key in WAITS},
            "share": median(sum(getattr(each, key) for *_, key in WAITS) / (run.step_ns or 1.0) * 1e9 for run, each in found),
        }
        for point, found in measured
    ]
    return _measured_table("sharding", "Waits for sharded parameters", measured, specs, rows)


def profiled_table(runs: Sequence[Run]) -> Table:
    """A row per point with `comm: check`, medians over its runs; no rows where no profiler saw a collective."""
    measured, head = _by_point(runs, lambda run: run.profiled), "in profiled steps, ms"
    specs: list[Spec] = [
        *OF_POINT,
        (Column("step", head, terminal="step ms"), number_of("step_s", milli)),
        (Column("collectives", head, terminal="coll. ms"), number_of("collectives_s", milli)),
        (Column("of them exposed", head, terminal="exposed"), number_of("exposed_s", milli)),
        (Column("by the step clock", head, terminal="by clock"), number_of("clock_s", milli)),
        (Column("exposed, of the step", head, terminal="of step"), number_of("share", percent)),
        (Column("longest", numeric=False, terminal="most in"), words_of("longest")),
    ]
    rows = [_profiled_row([each for _, each in found]) for _, found in measured]
    return _measured_table("profiled-exchange", "Collectives in profiled steps", measured, specs, rows)


def _profiled_row(profiles: Sequence[Any]) -> dict[str, Any]:
    clocks_s = [each.step_clock_exposed_s for each in profiles if each.step_clock_exposed_s is not None]
    return {
        **{key: median(getattr(each, key) for each in profiles) for key in ("step_s", "collectives_s", "exposed_s")},
        "clock_s": median(clocks_s) if clocks_s else None,
        "share": median(each.exposed_s / each.step_s for each in profiles if each.step_s),
        "longest": max(profiles[0].by_operation_s, key=profiles[0].by_operation_s.__getitem__),
    }


def limits(rows: pd.DataFrame) -> Table:
    """Full training beside what the trainer and the loader reach alone."""

    def size(row: Any) -> Cell:
        return Cell(f"{row['nodes']} × {row['gpus_per_node']}", float(row["nodes"] * row["gpus_per_node"]))

    specs = [
        (Column("layout", numeric=False, terminal=f"nodes x {unit_of(rows)}s"), size),
        (Column("series", numeric=False), words_of("series")),
        (Column("full training", terminal="full", always=True), number_of("full", quantity)),
        (Column("synthetic data", always=True), number_of("synthetic", quantity)),
        (Column("loader only", always=True), number_of("io", quantity)),
    ]
    note = "Samples/s of full training, with synthetic data (one resident batch), and of loading and copying without training."
    return table_of("limits", "Limits of training", note, specs, rows)


BUS = "bus bandwidth, GB/s"


def collectives(rows: pd.DataFrame) -> Table:
    """Latency and bus bandwidth, one line per layout and operation."""
    specs = [
        (Column("layout", numeric=False), words_of("layout")),
        (Column("operation", numeric=False), lambda row: Cell(OPS[row["op"]], OPS[row["op"]])),
        (Column("latency, µs", terminal="latency us", always=True), number_of("latency_s", lambda s: quantity(s * 1e6))),
        (Column("fitted", BUS, terminal="fitted GB/s", always=True), number_of("busbw_bytes_per_s", giga)),
        (Column("measured", BUS, terminal="GB/s", always=True), number_of("largest_busbw_bytes_per_s", giga)),
        (Column("at", BUS, always=True), number_of("largest_bytes", lambda size: message_size(int(size)))),
    ]
    note = "Latency and bus bandwidth by `hpcddp bench comm`; bus bandwidth as nccl-tests defines it."
    return table_of("collectives", "Collectives", note, specs, rows)
