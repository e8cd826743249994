"""`hpcddp submit`: everything still missing, nothing twice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcddp.commands.options import choose_and_remark, choosing, measuring, read_settings, remark, submitting

if TYPE_CHECKING:
    from hpcddp.core.run_root import Study
    from hpcddp.submit.choose import ChosenPoints
    from hpcddp.submit.options import PointOptions, SubmitOptions
    from hpcddp.submit.until_ci import Known


@click.command()
@click.argument("sweep", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@choosing
@measuring
@click.option(
    "--until-ci", type=click.FloatRange(min=0, min_open=True), metavar="PERCENT", help="Add runs until medians are known to this."
)
@click.option(
    "--max-repeat", type=click.IntRange(min=6), default=20, show_default=True, help="With --until-ci: runs of a point at most."
)
@submitting
@click.pass_context
def submit(ctx: click.Context, /, sweep: Path, points: PointOptions, options: SubmitOptions) -> None:
    """Submit what is missing or failed of a sweep.

    Returns at once; with --wait, when all runs are over. Runs land beside the sweep, in a folder of its name. Ends with 5
    where Slurm refuses.

    With --until-ci 2, points get six runs, then one more each time it is run, while half the 95 % interval of their median
    is wider than 2 % of it; with --wait until none is, or it ends with 3: --max-repeat, or a run that was rejected.

    With --one-allocation all runs are steps of one job with the nodes of the largest point, largest points first, for the
    sum of their times; what its time limit leaves is requeued, and what is done is not run again.

    \b
    hpcddp submit jobs/rcc-bigmnist.yaml --where 'layout.nodes <= 2' --smoke
    hpcddp submit jobs/rcc-bigmnist.yaml --group nodes --input synthetic --input io --profile-steps 5
    hpcddp submit jobs/local-mnist.yaml --set repeat=1 --wait -y
    hpcddp submit jobs/rcc-bigmnist.yaml --group nodes --until-ci 2 --wait
    hpcddp submit jobs/rcc-bigmnist.yaml --group nodes --one-allocation
    """
    ctx.exit(submit_chosen(choose_and_remark(sweep, points), options))


def submit_chosen(points: ChosenPoints, options: SubmitOptions) -> int:
    """Submits these points with the settings of the user, on this terminal; the exit code."""
    from hpcddp.submit.session import Console, submit_points

    if options.smoke and options.after:
        raise click.UsageError("--smoke tests now what --after waits for: give one of them")
    if options.failed and options.until_ci is not None:
        raise click.UsageError("--failed submits no run that has not failed, and --until-ci adds runs: give one of them")
    console = Console(
        echo=click.echo,
        remark=remark,
        progress=lambda text: click.echo(text, err=True),
        confirm=lambda question: click.confirm(question, abort=True, err=True),
    )
    return submit_points(points, read_settings(), options, console, _precision)


def _precision(study: Study) -> Known:
    """Imports pandas, which a login node needs for --until-ci only."""
    from hpcddp.analysis.study.precision import precision

    return precision(study)
