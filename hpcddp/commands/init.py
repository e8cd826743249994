"""`hpcddp init`: a shipped sweep to edit."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from hpcddp.commands import completion
from hpcddp.core.records import write_file


@click.command()
@click.argument("name", required=False, metavar="[NAME|MODEL/DATA]", shell_complete=completion.shipped_names)
@click.option("--cluster", metavar="NAME|FILE", shell_complete=completion.cluster_names, help="Write a sweep for this cluster.")
@click.option("-o", "output", type=click.Path(path_type=Path), help="File to write. Default: NAME.yaml or CLUSTER-MODEL.yaml.")
def init(name: str | None, cluster: str | None, output: Path | None) -> None:
    """Copy a shipped sweep to edit, or write a sweep for a cluster. Without arguments, list the shipped sweeps.

    `hpcddp studies` shows which sweeps repeat a published study, and where each is described. A sweep for a cluster has the
    cluster's node types and job sizes. Without MODEL/DATA it trains the workload of the cluster's profile.

    \b
    hpcddp init
    hpcddp init rcc-bigmnist
    hpcddp init --cluster leonardo resnet50/imagenet
    """
    from hpcddp.core.errors import UsageError
    from hpcddp.sweep.shipped import shipped_sweeps, sweeps_table

    if name is None and cluster is None:
        click.echo(sweeps_table(shipped_sweeps()))
        return
    text, target, script = _copy(str(name), output) if cluster is None else (*_for_cluster(cluster, name, output), None)
    files = {target: text} | ({target.with_name(script.name): script.read_text("utf-8")} if script else {})
    for file in files:
        if os.path.lexists(file):
            name = "another name" if file == target else "a name in another folder"
            raise UsageError(f"{file} exists; choose {name} with -o, or remove it first")
    for file, content in files.items():
        write_file(file, content, "x")
    click.echo(f"Edit {target}; then run `hpcddp plan {shlex.quote(str(target))}`.", err=True)


def _copy(name: str, output: Path | None) -> tuple[str, Path, Path | None]:
    """A shipped sweep, where it goes, and the script that goes with it."""
    from hpcddp.sweep.shipped import shipped_sweep

    if "/" in name:
        raise click.UsageError(f"{name}: MODEL/DATA needs a cluster; add --cluster NAME")
    sweep = shipped_sweep(name)
    return sweep.text, output or Path(f"{name}.yaml"), sweep.script


def _for_cluster(cluster: str, workload: str | None, output: Path | None) -> tuple[str, Path]:
    """A new sweep for that cluster, and where it goes."""
    from hpcddp.cluster.profile_file import load_profile
    from hpcddp.submit.new_sweep import new_sweep, sweep_file

    if workload is not None and not all(workload.partition("/")):
        raise click.UsageError(f"{workload}: with --cluster, write MODEL/DATA, such as resnet50/imagenet")
    profile = load_profile(cluster)
    target = output or sweep_file(profile, workload)
    return new_sweep(profile, workload, target), target
