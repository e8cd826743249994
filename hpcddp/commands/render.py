"""`hpcddp render`: the sbatch script, on stdout or in files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcddp.commands.options import (
    choosing,
    job_option,
    pick_cluster,
    read_settings,
    read_study,
    remark,
    requests_for,
    user_of,
)

if TYPE_CHECKING:
    from hpcddp.cluster import ClusterProfile
    from hpcddp.sweep import PlannedPoint, SweepFile


@click.command()
@click.argument("sweep", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@choosing
@click.option("--nodes", type=click.IntRange(min=1), help="Nodes (without a sweep file).")
@click.option("--gpus-per-node", type=click.IntRange(min=1), help="GPUs, and so ranks, on each node; by default all of a node's.")
@click.option("--node-type", help="One of the profile's node types; by default its default one.")
@click.option("--workload", metavar="MODEL/DATA", help="Such as resnet18/cifar10; by default the profile's workload.")
@job_option
@click.option("-o", "target", type=click.Path(), help="Write to this file; a folder for a sweep of several points, or as NAME/.")
def render(sweep: Path | None, target: str | None, job_options: tuple[str, ...], **options: Any) -> None:
    """Print the sbatch script of a point, ready for `sbatch`.

    \b
    hpcddp render --cluster rcc --nodes 4
    hpcddp render --cluster marconi100 --nodes 16 --set slurm.walltime_min=60 -o job.sh
    hpcddp render jobs/rcc-bigmnist.yaml -o scripts/
    """
    from hpcddp.textout import count

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
    given = [f"--{name.replace('_', '-')}" for name in ("nodes", "gpus_per_node", "node_type", "workload") if options[name]]
    if sweep is not None:
        if given:
            raise click.UsageError(f"{given[0]} is for rendering without a sweep file; use --set or --where with one")
        cluster, changes, groups, conditions = (options[name] for name in ("cluster", "settings", "groups", "conditions"))
        return read_study(sweep, cluster, changes, groups, conditions, job_options)
    if options["groups"] or options["conditions"]:
        raise click.UsageError("--group and --where choose among the points of a sweep file; none is given")
    return _single(job_options, options)


def _single(job_options: tuple[str, ...], options: dict[str, Any]) -> tuple[SweepFile, ClusterProfile, list[PlannedPoint]]:
    """One point from flags, on the cluster's default workload."""
    from hpcddp.sweep import expand, make_sweep, with_job_options

    profile = pick_cluster(options["cluster"])
    node = profile.node_type(options["node_type"])
    layout = {
        "nodes": options["nodes"] or 1,
        "gpus_per_node": options["gpus_per_node"] or node.gpus or 1,
        "node_type": options["node_type"],
    }
    document = {
        "schema": 1,
        "cluster": profile.name,
        "workload": _workload(profile, options["workload"]),
        "layout": layout,
        "device": "cpu" if profile.backend == "local" else "cuda",
    }
    source = with_job_options(make_sweep(document, options["settings"], Path("adhoc")), job_options)
    if source.sweep.layout.node_type is None:
        remark(f"node type {profile.default_node_type}, the default of {profile.name}")
    return source, profile, expand(source, profile)


def _workload(profile: ClusterProfile, named: str | None) -> Any:
    from hpcddp.schema import encode

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
    from hpcddp.errors import UsageError
    from hpcddp.jobspec import JobSpec
    from hpcddp.plan import without_folder
    from hpcddp.schema import encode
    from hpcddp.script import launch_by_hand
    from hpcddp.script import render as render_script

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
