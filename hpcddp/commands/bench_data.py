"""`hpcddp bench data`: how fast a data set is loaded where it lies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcddp.commands.options import (
    check_sources,
    choose_and_remark,
    choosing,
    job_option,
    laying_out,
    read_settings,
    remark_on,
    yes_option,
)
from hpcddp.commands.submit import make_console

if TYPE_CHECKING:
    from hpcddp.submit.options import LayoutOptions, PointOptions


def _numbers(least: int) -> Callable[[click.Context, click.Parameter, str | None], tuple[int, ...]]:
    """Of an option with whole numbers and commas between them."""

    def parsed(ctx: click.Context, param: click.Parameter, given: str | None) -> tuple[int, ...]:
        try:
            numbers = tuple(dict.fromkeys(int(word) for word in given.split(","))) if given is not None else ()
        except ValueError:
            raise click.BadParameter(f"{given!r} is not numbers with commas between them, as 1,2,4", ctx, param) from None
        if numbers and min(numbers) < least:
            raise click.BadParameter(f"{min(numbers)} is less than {least}", ctx, param)
        return numbers

    return parsed


@click.command("data")
@click.argument("sweep", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@choosing
@laying_out
@click.option("--data", "name", metavar="NAME", help="A data set, without a sweep file: imagenet, bigmnist, ...")
@click.option("--root", metavar="DIR", help="Its folder, as the job sees it.")
@click.option("--workers", callback=_numbers(0), metavar="N,...", help="Loader processes a rank; by default up to its CPUs.")
@click.option(
    "--batch", "batches", callback=_numbers(1), metavar="N,...", help="Samples a rank and step; by default the points'."
)
@click.option(
    "--decoder",
    "decoders",
    multiple=True,
    type=click.Choice(["simplejpeg", "pillow", "torchvision"]),
    help="Each of these; by default the points' own.",
)
@click.option(
    "--form",
    "forms",
    multiple=True,
    type=click.Choice(["shards", "virtual", "augmented"]),
    help="Of bigMNIST, each of these; by default the points' own.",
)
@click.option(
    "--seconds", default=3.0, show_default=True, type=click.FloatRange(min=0.1, max=600), help="Of each measurement, about."
)
@job_option
@click.option("--runs", type=click.Path(path_type=Path, file_okay=False), envvar="HPCDDP_RUNS", help="Run root, as of submit.")
@click.option("--dry-run", is_flag=True, help="Show what would be submitted; submit nothing.")
@click.option("--wait", is_flag=True, help="Stay until the jobs are over, and show what they found.")
@yes_option
@click.pass_context
def data(
    ctx: click.Context,
    /,
    sweep: Path | None,
    points: PointOptions,
    layout: LayoutOptions,
    name: str | None,
    root: str | None,
    workers: tuple[int, ...],
    batches: tuple[int, ...],
    decoders: tuple[str, ...],
    forms: tuple[str, ...],
    seconds: float,
    runs: Path | None,
    dry_run: bool,
    wait: bool,
    yes: bool,
) -> None:
    """Measure how fast a data set is loaded where it lies.

    Samples a second by loader processes, batch, decoder and form, with the files' pages dropped from memory and right after, and
    what reading and decoding come to apart; beside them what the storage gives in large pieces. All ranks of a layout load at
    the same time, as they would train: one job for each layout of a sweep, or without a sweep file one layout. With the
    cluster `local` that is this machine. The result says what limits each setting and which one feeds the GPUs; `hpcddp
    analyze` shows it beside the runs.

    \b
    hpcddp bench data jobs/rcc-bigmnist.yaml --where 'layout.nodes == 1' --wait
    hpcddp bench data --cluster rcc --nodes 2 --data imagenet --root '$SCRATCH/imagenet' --set account=abc01
    hpcddp bench data --cluster local --data imagenet --root ./imagenet --workers 1,2 --decoder pillow --decoder simplejpeg --wait
    """
    from hpcddp.submit.data_benchmark import data_benches, data_layout, submit_data_benches
    from hpcddp.submit.options import DataBenchOptions, SubmitOptions

    check_sources(sweep, points, layout, data=name, root=root)
    if sweep is not None:
        chosen = choose_and_remark(sweep, points)
    elif name is not None:
        chosen = remark_on(data_layout(layout, points, name, root))
    else:
        raise click.UsageError("give a sweep file, or a data set by --data NAME --root DIR")
    wanted = DataBenchOptions(workers=workers, batches=batches, decoders=decoders, forms=forms, seconds=seconds)
    options = SubmitOptions(runs=runs, dry_run=dry_run, wait=wait, yes=yes)
    ctx.exit(submit_data_benches(data_benches(chosen, wanted), read_settings(), options, make_console()))
