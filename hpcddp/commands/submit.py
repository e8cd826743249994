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
    "--until-ci",
    type=click.FloatRange(min=0, min_open=True),
    metavar="PERCENT",
    help="Add runs until each median is known this well.",
)
@click.option("--max-repeat", type=click.IntRange(min=6), default=20, show_default=True, help="Most runs with --until-ci.")
@click.option("--prepare", is_flag=True, help="Submit a job that makes missing data first; runs start after it.")
@points_option
@submitting
@click.pass_context
def submit(ctx: click.Context, sweep: Path | None, points: PointOptions, layout: LayoutOptions, options: SubmitOptions) -> None:
    """Submit the missing and failed runs of a sweep, of a bundle's sweep, or a command of your own.

    The command returns at once; with --wait it returns when all runs have finished. Runs are written to the folder beside the
    sweep that has its name. The command exits with code 5 if Slurm refuses.

    With --until-ci 2, each point gets six runs. Each further call adds one run to a point while the half-width of its median's
    95 % interval exceeds 2 %. --wait repeats this. It exits with code 3 if --max-repeat or a rejected run ends it early.

    With --one-allocation, all runs are steps of one job on the nodes of the largest point, largest points first. At its time
    limit the job is requeued for the remaining runs. A short test measures each node first; with --set slurm.spare_nodes=1
    the runs avoid the slowest. --preflight runs that test in a job of its own.

    With --prepare, a job first makes missing data (bigmnist, digits). The runs start only if it completes successfully.

    With a bundle, its sweep is written here for --cluster as STUDY-CLUSTER.yaml and submitted. Account, node type, data folder
    and Slurm options of the other cluster are omitted. Compare both studies later with `hpcddp compare`.

    With a command after `--`, it submits the script that `render` prints. Each rank runs the command in this folder, with the
    variables of torch.distributed. Script and output are written to a folder of each job in jobs/commands/.

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
        raise click.UsageError(f"{bundle}: give --cluster, the cluster for the sweep of this bundle")
    file = _written_sweep(bundle, points.cluster)
    code = submit_chosen(choose_and_remark(file, points), options)
    remark(f"When all runs have finished: hpcddp compare {bundle} {options.runs / file.stem if options.runs else file}")
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
        remark(f"Omitted, because it holds on its own cluster only: {each}")
    file = Path(f"{sweep.study}-{profile.name}.yaml")
    try:
        write_file(file, sweep.text, "x")
    except FileExistsError as error:
        if file.read_text(encoding="utf-8", errors="replace") != sweep.text:
            words = f"{file} exists and is not the sweep of {bundle}: submit it by its name, or move it away"
            raise UsageError(words) from error
    return file


def _submit_command(
    sweep: Path | None, points: PointOptions, layout: LayoutOptions, options: SubmitOptions, words: Sequence[str]
) -> int:
    from hpcddp.submit.choose import command_layout
    from hpcddp.submit.command import command_job, submit_command

    of_runs = next((f"--{name.replace('_', '-')}" for name in OF_RUNS if getattr(options, name)), None)
    if sweep is not None or points.also or of_runs is not None:
        raise click.UsageError(f"a command after -- takes no {of_runs or 'sweep'}: give --cluster and --nodes")
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
        raise click.UsageError(f"{early} runs now, before the jobs that {later} waits for: give one of them")
    if options.failed and options.until_ci is not None:
        raise click.UsageError("--failed submits failed runs only, and --until-ci adds runs: give one of them")
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
