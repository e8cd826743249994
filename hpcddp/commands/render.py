"""`hpcddp render`: the sbatch script, on stdout or in files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcddp.commands.options import (
    check_sources,
    choosing,
    job_option,
    laying_out,
    measuring,
    read_settings,
    read_study,
    remark,
    requests_for,
    single_sweep,
    user_of,
)

if TYPE_CHECKING:
    from hpcddp.cluster.profile import ClusterProfile
    from hpcddp.sweep.expand import PlannedPoint
    from hpcddp.sweep.file import SweepFile


@click.command()
@click.argument("sweep", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@choosing
@measuring
@laying_out
@click.option("--workload", metavar="MODEL/DATA", help="Such as resnet18/cifar10; by default the profile's workload.")
@job_option
@click.option("-o", "target", type=click.Path(), help="Write to this file; a folder for a sweep of several points, or as NAME/.")
def render(sweep: Path | None, target: str | None, job_options: tuple[str, ...], **options: Any) -> None:
    """Print the sbatch script of a point, ready for `sbatch`.

    \b
    hpcddp render --cluster rcc --nodes 4
    hpcddp render --cluster marconi100 --nodes 16 --set slurm.walltime_min=60 -o job.sh
    hpcddp render jobs/rcc-bigmnist.yaml -o scripts/
    hpcddp render --cluster rcc --comm on --profile-steps 5
    """
    from hpcddp.core.text import count

    source, profile, points = _study(sweep, job_options, options)
    scripts = _scripts(source, profile, points)
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


def _study(
    sweep: Path | None, job_options: tuple[str, ...], options: dict[str, Any]
) -> tuple[SweepFile, ClusterProfile, list[PlannedPoint]]:
    from hpcddp.sweep.expand import expand

    check_sources(sweep, options, ("nodes", "gpus_per_node", "node_type", "workload"))
    if sweep is None:
        source, profile = single_sweep(options, lambda profile: _workload(profile, options["workload"]), "adhoc", job_options)
        return source, profile, expand(source, profile, also=options["also"])
    cluster, changes, groups, conditions = (options[name] for name in ("cluster", "settings", "groups", "conditions"))
    return read_study(sweep, cluster, changes, groups, conditions, job_options, options["also"])


def _workload(profile: ClusterProfile, named: str | None) -> Any:
    from hpcddp.core.schema import encode

    if named is not None:
        model, slash, data = named.partition("/")
        if not slash:
            raise click.UsageError(f"--workload {named}: write MODEL/DATA, such as resnet18/cifar10")
        return {"model": model, "data": {"name": data}}
    if profile.default_workload is None:
        raise click.UsageError(f"profile {profile.name} has no default workload: give --workload MODEL/DATA")
    return encode(profile.default_workload)


def _scripts(source: SweepFile, profile: ClusterProfile, points: list[PlannedPoint]) -> dict[str, str]:
    """Label -> script text."""
    from hpcddp.core.errors import UsageError
    from hpcddp.core.jobspec import JobSpec
    from hpcddp.core.schema import encode
    from hpcddp.script.render import launch_by_hand
    from hpcddp.script.render import render as render_script
    from hpcddp.submit.plan import without_folder

    if profile.backend != "slurm":
        raise UsageError(f"{profile.name} has no Slurm, so no sbatch script; `hpcddp submit` runs it here")
    settings = read_settings()
    user = user_of(source, settings)
    if user.account is None and profile.slurm.account_required:
        remark(
            f"no account: the line is left out and {profile.name} will refuse the job; set SBATCH_ACCOUNT or --set account=NAME"
        )
    for text in without_folder(points, settings.data_roots):
        remark(text)
    requests = requests_for(source, profile, points, user)
    as_used = {key: value for key, value in encode(profile).items() if key not in ("facts", "sources")}
    run_root = settings.run_root_here()
    scripts = {}
    for planned in points:
        point = planned.point
        data_root = settings.data_roots.get(point.workload.data.name)
        spec = JobSpec(point=point, study="$HPCDDP_RUNS/adhoc", data_root=data_root, profile=as_used)
        scripts[point.label] = render_script(
            profile, point, requests[point.label], launch_by_hand(profile, spec, None if run_root is None else str(run_root))
        )
    return scripts
