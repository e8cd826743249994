"""`hpcddp render`: the sbatch script, on stdout or in files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcddp.commands.options import (
    check_sources,
    choose_and_remark,
    choosing,
    job_option,
    laying_out,
    measuring,
    read_settings,
    remark,
    remark_on,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpcddp.cluster.profile import ClusterProfile
    from hpcddp.submit.choose import ChosenPoints
    from hpcddp.submit.options import LayoutOptions, PointOptions


@click.command()
@click.argument("sweep", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@choosing
@measuring
@laying_out
@click.option("--workload", metavar="MODEL/DATA", help="Such as resnet18/cifar10; by default the profile's workload.")
@job_option
@click.option("-o", "target", type=click.Path(), help="Write to this file; a folder for a sweep of several points, or as NAME/.")
def render(sweep: Path | None, points: PointOptions, layout: LayoutOptions, workload: str | None, target: str | None) -> None:
    """Print the sbatch script of a point, ready for `sbatch`.

    \b
    hpcddp render --cluster rcc --nodes 4
    hpcddp render --cluster marconi100 --nodes 16 --set slurm.walltime_min=60 -o job.sh
    hpcddp render jobs/rcc-bigmnist.yaml -o scripts/
    hpcddp render --cluster rcc --comm on --profile-steps 5
    """
    from hpcddp.core.text import count
    from hpcddp.submit.scripts_by_hand import missing_settings, scripts_by_hand

    check_sources(sweep, points, layout, workload=workload)
    found = _choose_layout(points, layout, workload) if sweep is None else choose_and_remark(sweep, points)
    settings = read_settings()
    for text in missing_settings(found, settings):
        remark(text)
    scripts = scripts_by_hand(found, settings)
    output = None if target is None else Path(target)
    folder_meant = output is not None and (output.is_dir() or str(target).endswith("/"))
    if len(scripts) == 1 and not folder_meant:
        (text,) = scripts.values()
        click.echo(text, nl=False) if output is None else output.write_text(text, encoding="utf-8")
        return
    if output is None:
        raise click.UsageError(f"{len(scripts)} points: give -o FOLDER, or choose one with --where and --group")
    if output.exists() and not output.is_dir():
        raise click.UsageError(f"{len(scripts)} points go into a folder, and {output} is a file: give -o another name")
    output.mkdir(parents=True, exist_ok=True)
    for label, text in scripts.items():
        (output / f"{label}.sh").write_text(text, encoding="utf-8")
    remark(f"{count(len(scripts), 'script')} in {output}")


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
