"""`hpcddp bench comm`: which layouts are benchmarked, each once, in a short job."""

from __future__ import annotations

from dataclasses import replace

from hpcddp.core.errors import UsageError
from hpcddp.core.point import Point, comm_point
from hpcddp.submit.choose import ChosenPoints, choose_layout
from hpcddp.submit.options import LayoutOptions, PointOptions
from hpcddp.sweep.expand import PlannedPoint, with_node_type

WALLTIME_MIN = 15
"""Of a run, at most: it measures for three minutes, and nodes take theirs to import torch."""

NO_BASELINES = "baselines=false"
"""--set for a sweep whose layouts are benchmarked: nothing here is relative to another layout."""


def untrained_layout(layout: LayoutOptions, options: PointOptions) -> ChosenPoints:
    """A point of that layout that is of no training of hpcddp's, where no sweep file is given."""
    chosen = choose_layout(layout, options, lambda profile: {"model": "none", "data": {"name": "none"}}, "bench-comm")
    wanted = chosen.source.sweep
    full = with_node_type(wanted.layout, chosen.profile)
    point = Point(cluster=chosen.profile.name, workload=wanted.workload, layout=full, device=wanted.device, env=wanted.variables)
    return replace(chosen, points=[PlannedPoint(comm_point(point), ())])


def command_layout(layout: LayoutOptions, options: PointOptions) -> ChosenPoints:
    """The layout that a command of the user's own runs on; UsageError where there is no Slurm."""
    chosen = untrained_layout(layout, options)
    if chosen.profile.backend != "slurm":
        raise UsageError(f"{chosen.profile.name} has no Slurm: start the command here as it is, or with torchrun")
    return chosen


def comm_benchmarks(chosen: ChosenPoints) -> ChosenPoints:
    """One run for each layout of the points; UsageError where no layout has two ranks."""
    found = {point.id: point for point in (comm_point(planned.point) for planned in chosen.points)}
    several = [point for point in found.values() if point.ranks > 1]
    if not several:
        raise UsageError("a single rank talks to nobody: choose layouts of two ranks or more (--nodes, --gpus-per-node)")
    left_out = ["layouts of a single rank are left out: it talks to nobody"] if len(several) < len(found) else []
    chosen = shorter(chosen, WALLTIME_MIN)
    source = replace(chosen.source, sweep=replace(chosen.source.sweep, repeat=1))
    return replace(chosen, source=source, points=[PlannedPoint(point, ()) for point in several], remarks=left_out)


def shorter(chosen: ChosenPoints, walltime_min: int) -> ChosenPoints:
    """The same with that time limit, unless the sweep's is shorter still."""
    sweep = chosen.source.sweep
    slurm = replace(sweep.slurm, walltime_min=min(walltime_min, sweep.slurm.walltime_min))
    return replace(chosen, source=replace(chosen.source, sweep=replace(sweep, slurm=slurm)))
