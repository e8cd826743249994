"""`hpcddp bench`: benchmarks of what training stands on: the network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcddp.commands.options import check_sources, choose_and_remark, choosing, laying_out, remark_on, submitting
from hpcddp.commands.submit import submit_chosen

if TYPE_CHECKING:
    from hpcddp.submit.options import LayoutOptions, PointOptions, SubmitOptions


@click.group()
def bench() -> None:
    """Benchmark the network between ranks. To benchmark data loading, run the sweep `loaders` (hpcddp init loaders).

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
    """Time collectives among the ranks of a job.

    Times all-reduce, reduce-scatter, all-gather, broadcast and send/receive from 1 KiB to 1 GiB. Each layout of a sweep gets
    one run of at most 15 minutes, beside its other runs. Without a sweep file, one layout is measured under ./bench-comm.
    `hpcddp analyze` shows latency and bandwidth.

    \b
    hpcddp bench comm jobs/rcc-bigmnist.yaml --group nodes
    hpcddp bench comm --cluster rcc --nodes 2 --gpus-per-node 4
    """
    from dataclasses import replace

    from hpcddp.submit.choose import NO_BASELINES, comm_benchmarks, untrained_layout

    check_sources(sweep, points, layout)
    if sweep is None:
        chosen = remark_on(untrained_layout(layout, points))
    else:
        chosen = choose_and_remark(sweep, replace(points, settings=(*points.settings, NO_BASELINES)))
    ctx.exit(submit_chosen(remark_on(comm_benchmarks(chosen)), replace(options, each_point=True)))
