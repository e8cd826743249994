"""`hpcddp bench`: benchmarks of what training stands on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcddp.commands.options import check_sources, choose_and_remark, choosing, laying_out, remark, submitting
from hpcddp.commands.submit import submit_chosen

if TYPE_CHECKING:
    from hpcddp.submit.choose import ChosenPoints
    from hpcddp.submit.options import LayoutOptions, PointOptions, SubmitOptions

WALLTIME_MIN = 15
"""Of a run, at most: it measures for three minutes, and nodes take theirs to import torch."""


@click.group()
def bench() -> None:
    """Benchmark the network that ranks talk through.

    \b
    hpcddp bench comm rcc-bigmnist.yaml
    """


@bench.command()
@click.argument("sweep", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@choosing
@laying_out
@submitting
@click.pass_context
def comm(ctx: click.Context, /, sweep: Path | None, points: PointOptions, layout: LayoutOptions, options: SubmitOptions) -> None:
    """Time the collectives of a job's own ranks.

    All-reduce, reduce-scatter, all-gather, broadcast and send/receive from 1 KiB to 1 GiB: one run of at most 15 minutes on
    each layout of a sweep, beside its other runs, or without a sweep file on one layout, under ./bench-comm. `hpcddp analyze`
    shows latency and bandwidth.

    \b
    hpcddp bench comm jobs/rcc-bigmnist.yaml --group nodes
    hpcddp bench comm --cluster rcc --nodes 2 --gpus-per-node 4
    """
    check_sources(sweep, points, layout)
    chosen = _choose_layout(points, layout) if sweep is None else _choose_layouts(sweep, points)
    ctx.exit(submit_chosen(_benchmarks(chosen), options))


def _choose_layouts(sweep: Path, points: PointOptions) -> ChosenPoints:
    """The points of a sweep; no baselines are added, as nothing here is relative to another layout."""
    from dataclasses import replace

    return choose_and_remark(sweep, replace(points, settings=(*points.settings, "baselines=false")))


def _choose_layout(points: PointOptions, layout: LayoutOptions) -> ChosenPoints:
    """A point that trains nothing, where no sweep file is given."""
    from hpcddp.core.point import Point
    from hpcddp.submit.choose import ChosenPoints, node_type_remarks, pick_cluster, sweep_of_layout
    from hpcddp.sweep.expand import PlannedPoint, with_node_type

    profile = pick_cluster(points.cluster)
    nothing = {"model": "none", "data": {"name": "none"}}
    source = sweep_of_layout(profile, layout, points, lambda: nothing, "bench-comm")
    for text in node_type_remarks(source, profile):
        remark(text)
    wanted = source.sweep
    full = with_node_type(wanted.layout, profile)
    point = Point(cluster=profile.name, workload=wanted.workload, layout=full, device=wanted.device)
    return ChosenPoints(source=source, profile=profile, points=[PlannedPoint(point, ())])


def _benchmarks(chosen: ChosenPoints) -> ChosenPoints:
    """One run for each layout of the points, with a time limit of its own; UsageError where no layout has two ranks."""
    from dataclasses import replace

    from hpcddp.core.errors import UsageError
    from hpcddp.core.point import comm_point
    from hpcddp.sweep.expand import PlannedPoint

    found = {point.id: point for point in (comm_point(planned.point) for planned in chosen.points)}
    several = [point for point in found.values() if point.ranks > 1]
    if not several:
        raise UsageError("a single rank talks to nobody: choose layouts of two ranks or more (--nodes, --gpus-per-node)")
    if len(several) < len(found):
        remark("layouts of a single rank are left out: it talks to nobody")
    slurm = chosen.source.sweep.slurm
    slurm = replace(slurm, walltime_min=min(WALLTIME_MIN, slurm.walltime_min))
    source = replace(chosen.source, sweep=replace(chosen.source.sweep, repeat=1, slurm=slurm))
    return replace(chosen, source=source, points=[PlannedPoint(point, ()) for point in several])
