"""`hpcddp submit`: everything still missing, nothing twice."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcddp.commands.options import (
    TakesCommand,
    check_sources,
    choose_and_remark,
    choosing,
    command_of,
    laying_out,
    measuring,
    points_option,
    read_settings,
    remark,
    remark_on,
    submitting,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcddp.core.run_root import Study
    from hpcddp.submit.choose import ChosenPoints
    from hpcddp.submit.options import Console, LayoutOptions, PointOptions, SubmitOptions
    from hpcddp.submit.until_ci import Known

OF_RUNS = ("failed", "max_jobs", "max_running", "one_allocation", "preflight", "prepare", "smoke", "until_ci")
"""Options that are about several runs, by their names in SubmitOptions."""


@click.command(cls=TakesCommand)
@click.argument("sweep", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@choosing
@measuring
@laying_out
@click.option(
    "--until-ci", type=click.FloatRange(min=0, min_open=True), metavar="PERCENT", help="Add runs until medians are known to this."
)
@click.option(
    "--max-repeat", type=click.IntRange(min=6), default=20, show_default=True, help="With --until-ci: runs of a point at most."
)
@click.option("--prepare", is_flag=True, help="First a job that makes missing data; runs start if it ended well.")
@points_option
@submitting
@click.pass_context
def submit(
    ctx: click.Context, /, sweep: Path | None, points: PointOptions, layout: LayoutOptions, options: SubmitOptions
) -> None:
    """Submit what is missing or failed of a sweep, a bundle's sweep, or a command of your own.

    Returns at once; with --wait, when all runs are over. Runs land beside the sweep, in a folder of its name. Ends with 5
    where Slurm refuses.

    With --until-ci 2, points get six runs, then one more each time it is run, while half the 95 % interval of their median
    is wider than 2 % of it; with --wait until none is, or it ends with 3: --max-repeat, or a run that was rejected.

    With --one-allocation all runs are steps of one job with the nodes of the largest point, largest points first, for the
    sum of their times; what its time limit leaves is requeued, and what is done is not run again. Before the first run each
    node is measured for some seconds; with --set slurm.spare_nodes=1 runs stay off a slow one. --preflight does the same
    in a job of its own.

    With --prepare, data that are missing (bigmnist, digits) are made by a job before, and the runs start only if it ended well;
    what is there, or being made, is not made again.

    With a bundle, its sweep is written here for --cluster, as STUDY-CLUSTER.yaml, and submitted: without account, node type,
    data's folder and Slurm's options, which are its own cluster's. `hpcddp compare` says later how far both agree.

    With a command behind `--` it submits what `render` prints for it: each rank runs it, here, with the variables that
    torch.distributed reads. Script and output go to jobs/commands/, a folder for each job.

    \b
    hpcddp submit jobs/rcc-bigmnist.yaml --where 'layout.nodes <= 2' --smoke
    hpcddp submit jobs/rcc-bigmnist.yaml --group nodes --input synthetic --input io --profile-steps 5
    hpcddp submit jobs/local-mnist.yaml --set repeat=1 --wait -y
    hpcddp submit jobs/rcc-bigmnist.yaml --group nodes --until-ci 2 --wait
    hpcddp submit jobs/rcc-bigmnist.yaml --group nodes --one-allocation
    hpcddp submit rcc-bigmnist.tar.gz --cluster marconi100 --set account=abc01
    hpcddp submit --cluster rcc --nodes 2 -- python train.py --lr 0.1
    """
    check_sources(sweep, points, layout)
    if sweep is not None and _is_bundle(sweep):
        ctx.exit(_submit_bundle(sweep, points, options))
    if command := command_of(ctx):
        ctx.exit(_submit_command(sweep, points, layout, options, command))
    if sweep is None:
        raise click.UsageError("give a sweep file, or a layout and a command: --nodes 2 -- python train.py")
    ctx.exit(submit_chosen(choose_and_remark(sweep, points), options))


def _is_bundle(file: Path) -> bool:
    """Whether it begins as gzip does (RFC 1952)."""
    with file.open("rb") as source:
        return source.read(2) == b"\x1f\x8b"


def _submit_bundle(bundle: Path, points: PointOptions, options: SubmitOptions) -> int:
    """Writes the bundle's sweep for that cluster here and submits it; nothing of the bundle is run. The exit code."""
    if points.cluster is None:
        raise click.UsageError(f"{bundle}: give --cluster, on which the sweep of this bundle is to run")
    file = _written_sweep(bundle, points.cluster)
    code = submit_chosen(choose_and_remark(file, points), options)
    remark(f"when all its runs are over: hpcddp compare {bundle} {options.runs / file.stem if options.runs else file}")
    return code


def _written_sweep(bundle: Path, cluster: str) -> Path:
    """STUDY-CLUSTER.yaml here; what of the sweep means something on its own cluster only is said."""
    from hpcddp.cluster.profile_file import load_profile
    from hpcddp.core.errors import UsageError
    from hpcddp.core.records import write_file
    from hpcddp.share.bundled_sweep import bundled_sweep

    profile = load_profile(cluster)
    sweep = bundled_sweep(bundle, cluster)
    for each in sweep.dropped:
        remark(f"left out, as it means something on its own cluster only: {each}")
    file = Path(f"{sweep.study}-{profile.name}.yaml")
    try:
        write_file(file, sweep.text, "x")
    except FileExistsError as error:
        if file.read_text(encoding="utf-8", errors="replace") != sweep.text:
            words = f"{file} is already there, and is not the sweep of {bundle}: submit it by its name, or move it away"
            raise UsageError(words) from error
    return file


def _submit_command(
    sweep: Path | None, points: PointOptions, layout: LayoutOptions, options: SubmitOptions, words: Sequence[str]
) -> int:
    from hpcddp.submit.choose import command_layout
    from hpcddp.submit.command import command_job, submit_command

    of_runs = next((f"--{name.replace('_', '-')}" for name in OF_RUNS if getattr(options, name)), None)
    if sweep is not None or points.also or of_runs is not None:
        raise click.UsageError(f"a command behind -- has no {of_runs or 'sweep'}: give --cluster and --nodes")
    if options.runs is not None:
        os.environ["HPCDDP_RUNS"] = str(options.runs.absolute())  # where the job's records go, too
    job = command_job(remark_on(command_layout(layout, points)), read_settings(), words, options)
    return submit_command(job, options, make_console())


def submit_chosen(points: ChosenPoints, options: SubmitOptions) -> int:
    """Submits these points with the settings of the user, on this terminal; the exit code."""
    from hpcddp.submit.session import submit_points

    early = next((flag for flag, is_given in (("--smoke", options.smoke), ("--preflight", options.preflight)) if is_given), None)
    later = "--after" if options.after else "--prepare" if options.prepare else None
    if early and later:
        raise click.UsageError(f"{early} tests now what {later} waits for: give one of them")
    if options.failed and options.until_ci is not None:
        raise click.UsageError("--failed submits no run that has not failed, and --until-ci adds runs: give one of them")
    return submit_points(points, read_settings(), options, make_console(), _precision)


def make_console() -> Console:
    """This terminal."""
    from hpcddp.submit.options import Console

    return Console(
        echo=click.echo,
        remark=remark,
        progress=lambda text: click.echo(text, err=True),
        confirm=lambda question: click.confirm(question, abort=True, err=True),
    )


def _precision(study: Study) -> Known:
    """Imports pandas, which a login node needs for --until-ci only."""
    from hpcddp.analysis.study.effects import precision

    return precision(study)
