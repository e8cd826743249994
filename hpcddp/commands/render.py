"""`hpcddp render`: the sbatch script, on stdout or in files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcddp.commands.options import (
    TakesCommand,
    check_sources,
    choose_and_remark,
    choosing,
    command_of,
    format_option,
    job_option,
    laying_out,
    measuring,
    print_json,
    read_settings,
    remark,
    remark_on,
)
from hpcddp.core.records import write_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpcddp.cluster.profile import ClusterProfile
    from hpcddp.cluster.settings import Settings
    from hpcddp.submit.choose import ChosenPoints
    from hpcddp.submit.options import LayoutOptions, PointOptions


@click.command(cls=TakesCommand)
@click.argument("sweep", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@choosing
@measuring
@laying_out
@click.option("--workload", metavar="MODEL/DATA", help="Such as resnet18/cifar10; by default the profile's workload.")
@job_option
@click.option("-o", "target", type=click.Path(), help="Write to this file; a folder for a sweep of several points, or as NAME/.")
@click.option("--explain", is_flag=True, help="Show beside each line of a point's script where it comes from.")
@format_option
@click.pass_context
def render(
    ctx: click.Context,
    /,
    sweep: Path | None,
    points: PointOptions,
    layout: LayoutOptions,
    workload: str | None,
    target: str | None,
    explain: bool,
    format_: str,
) -> None:
    """Print the sbatch script of a point, ready for `sbatch`.

    With a command behind `--`, that of a job in which each rank runs it, with the variables that torch.distributed reads.

    \b
    hpcddp render --cluster rcc --nodes 4
    hpcddp render --cluster marconi100 --nodes 16 --set slurm.walltime_min=60 -o job.sh
    hpcddp render jobs/rcc-bigmnist.yaml -o scripts/
    hpcddp render --cluster rcc --comm on --profile-steps 5
    hpcddp render --cluster rcc --nodes 4 --explain
    hpcddp render --cluster rcc --nodes 2 -- python train.py --lr 0.1
    """
    from hpcddp.core.text import count
    from hpcddp.submit.scripts_by_hand import missing_settings, scripts_by_hand

    check_sources(sweep, points, layout, workload=workload)
    if command := command_of(ctx):
        if sweep is not None or workload is not None or explain:
            raise click.UsageError("a command after -- takes no sweep, --workload or --explain: give --cluster and --nodes")
        _write_one(_script_of_command(points, layout, command), target)
        return
    if explain and target is not None:
        raise click.UsageError("--explain prints what is not a script: leave -o out, or write it with `> FILE`")
    if format_ == "json" and not explain:
        raise click.UsageError("--format json is of --explain; a script is text")
    found = _choose_layout(points, layout, workload) if sweep is None else choose_and_remark(sweep, points)
    settings = read_settings()
    for text in missing_settings(found, settings):
        remark(text)
    if explain:
        _explain(found, settings, format_)
        return
    scripts = scripts_by_hand(found, settings)
    output = None if target is None else Path(target)
    folder_meant = output is not None and (output.is_dir() or str(target).endswith("/"))
    if len(scripts) == 1 and not folder_meant:
        (text,) = scripts.values()
        _write_one(text, target)
        return
    if output is None:
        raise click.UsageError(f"{len(scripts)} points: give -o FOLDER, or choose one with --where and --group")
    if output.exists() and not output.is_dir():
        raise click.UsageError(f"{len(scripts)} points go into a folder, and {output} is a file: give -o another name")
    output.mkdir(parents=True, exist_ok=True)
    for label, text in scripts.items():
        write_file(output / f"{label}.{'json' if found.profile.backend == 'sagemaker' else 'sh'}", text)
    remark(f"{count(len(scripts), 'script')} in {output}")


def _write_one(text: str, target: str | None) -> None:
    click.echo(text, nl=False) if target is None else write_file(Path(target), text)


def _script_of_command(points: PointOptions, layout: LayoutOptions, command: Sequence[str]) -> str:
    from hpcddp.submit.choose import command_layout
    from hpcddp.submit.scripts_by_hand import missing_settings, script_of_command

    found, settings = remark_on(command_layout(layout, points)), read_settings()
    for text in missing_settings(found, settings):
        remark(text)
    return script_of_command(found, settings, command)


def _explain(found: ChosenPoints, settings: Settings, format_: str) -> None:
    """Prints where each line of the only point's script comes from."""
    from hpcddp.core.text import escape_controls
    from hpcddp.submit.explain import explain_by_hand, explanation, explanation_plain

    if len(found.points) > 1:
        raise click.UsageError(f"{len(found.points)} points: --explain shows one; choose it with --where and --group")
    lines = explain_by_hand(found, settings)
    if format_ == "json":
        print_json(explanation_plain(lines))
    else:
        click.echo(escape_controls(explanation(lines, min(120, max(80, shutil.get_terminal_size((100, 0)).columns)))))


def _choose_layout(points: PointOptions, layout: LayoutOptions, workload: str | None) -> ChosenPoints:
    """The points of one layout, where no sweep file is given."""
    from dataclasses import replace

    from hpcddp.submit.choose import choose_layout
    from hpcddp.sweep.expand import expand

    chosen = remark_on(choose_layout(layout, points, lambda profile: _workload(profile, workload), "adhoc"))
    return replace(chosen, points=expand(chosen.source, chosen.profile, also=points.also))


def _workload(profile: ClusterProfile, named: str | None) -> Mapping[str, object]:
    from hpcddp.core.schema import encode

    if named is not None:
        model, slash, data = named.partition("/")
        if not slash:
            raise click.UsageError(f"--workload {named}: write MODEL/DATA, such as resnet18/cifar10")
        return {"model": model, "data": {"name": data}}
    if profile.default_workload is None:
        raise click.UsageError(f"profile {profile.name} has no default workload: give --workload MODEL/DATA")
    plain: Mapping[str, object] = encode(profile.default_workload)
    return plain
