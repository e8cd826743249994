"""`hpcddp bench`: benchmarks of what training stands on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcddp.commands.options import check_sources, choosing, laying_out, read_study, remark, single_sweep, submitting
from hpcddp.commands.submit import carry_out, make_plan

if TYPE_CHECKING:
    from hpcddp.cluster.profile import ClusterProfile
    from hpcddp.sweep.expand import PlannedPoint
    from hpcddp.sweep.file import SweepFile

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
def comm(ctx: click.Context, /, sweep: Path | None, job_options: tuple[str, ...], **options: Any) -> None:
    """Time the collectives of a job's own ranks.

    All-reduce, reduce-scatter, all-gather, broadcast and send/receive from 1 KiB to 1 GiB: one run of at most 15 minutes on
    each layout of a sweep, beside its other runs, or without a sweep file on one layout, under ./bench-comm. `hpcddp analyze`
    shows latency and bandwidth.

    \b
    hpcddp bench comm jobs/rcc-bigmnist.yaml --group nodes
    hpcddp bench comm --cluster rcc --nodes 2 --gpus-per-node 4
    """
    flags = ("runs", "dry_run", "smoke", "wait", "yes", "max_running", "max_jobs", "after", "one_allocation")
    how = {name: options.pop(name) for name in flags}
    source, profile, points = _study(sweep, job_options, options)
    carry_out(ctx, make_plan(_one_short_run(source), profile, _distinct(points)), **how)


def _study(
    sweep: Path | None, job_options: Sequence[str], options: Mapping[str, Any]
) -> tuple[SweepFile, ClusterProfile, list[PlannedPoint]]:
    from hpcddp.core.point import Point
    from hpcddp.sweep.expand import PlannedPoint, with_node_type

    check_sources(sweep, options, ("nodes", "gpus_per_node", "node_type"))
    if sweep is not None:
        cluster, changes, groups, conditions = (options[name] for name in ("cluster", "settings", "groups", "conditions"))
        changes = (*changes, "baselines=false")  # nothing here is relative to another layout
        return read_study(sweep, cluster, changes, groups, conditions, job_options)
    nothing = {"model": "none", "data": {"name": "none"}}
    source, profile = single_sweep(options, lambda profile: nothing, "bench-comm", job_options)
    asked = source.sweep
    layout = with_node_type(asked.layout, profile)
    point = Point(cluster=profile.name, workload=asked.workload, layout=layout, device=asked.device)
    return source, profile, [PlannedPoint(point, ())]


def _one_short_run(source: SweepFile) -> SweepFile:
    """The same file, asked for one run of each point that does not wait in the queue for a whole study's time."""
    from dataclasses import replace

    slurm = replace(source.sweep.slurm, walltime_min=min(WALLTIME_MIN, source.sweep.slurm.walltime_min))
    return replace(source, sweep=replace(source.sweep, repeat=1, slurm=slurm))


def _distinct(points: Sequence[PlannedPoint]) -> list[PlannedPoint]:
    """A benchmark for each layout of the points; UsageError where none has two ranks."""
    from hpcddp.core.errors import UsageError
    from hpcddp.core.point import comm_point
    from hpcddp.sweep.expand import PlannedPoint

    found = {point.id: point for point in (comm_point(planned.point) for planned in points)}
    several = [point for point in found.values() if point.ranks > 1]
    if not several:
        raise UsageError("a single rank talks to nobody: choose layouts of two ranks or more (--nodes, --gpus-per-node)")
    if len(several) < len(found):
        remark("layouts of a single rank are left out: it talks to nobody")
    return [PlannedPoint(point, ()) for point in several]
