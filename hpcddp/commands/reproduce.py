"""`hpcddp reproduce`: a study's sweep, to be run on another cluster."""

from __future__ import annotations

from pathlib import Path

import click

from hpcddp.commands.options import choose_and_remark, read_settings, remark, set_option
from hpcddp.commands.runs_path import RunsPath


@click.command()
@click.argument("study", type=RunsPath())
@click.option("--cluster", required=True, metavar="NAME|FILE", help="The profile of the cluster to run it on.")
@set_option
@click.option(
    "-o", "output", type=click.Path(dir_okay=False, path_type=Path), help="The file; by default STUDY-CLUSTER.yaml here."
)
def reproduce(study: Path, cluster: str, settings: tuple[str, ...], output: Path | None) -> None:
    """Write a study's sweep for another cluster, to be submitted there.

    Says what of it the cluster would refuse, and how to go on: submit it,
    then compare both studies. STUDY is a folder or a bundle. Nothing is
    submitted.

    \b
    hpcddp reproduce scaling.tar.gz --cluster rcc
    hpcddp reproduce scaling.tar.gz --cluster rcc --set layout.node_type=a40
    """
    from hpcddp.cluster.profile import load_profile
    from hpcddp.core.errors import UsageError
    from hpcddp.share.reproduce import transplant
    from hpcddp.study.study_folder import study_folder
    from hpcddp.submit.choose import job_requests
    from hpcddp.submit.options import PointOptions
    from hpcddp.submit.plan import without_folder

    profile = load_profile(cluster)
    sweep = transplant(study, cluster, settings)
    for each in sweep.dropped:
        remark(f"left out, as it means something on its own cluster only: {each}")
    file = output or Path(f"{sweep.study}-{profile.name}.yaml")
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(sweep.text)
    except FileExistsError as error:
        raise UsageError(f"{file} is already there; give -o another name, or remove it first") from error
    own = read_settings()
    there = study_folder(file, None, own)
    click.echo(f"{file} is to be looked at first. Then:\nhpcddp submit {file}\nhpcddp compare {study} {there}")
    try:
        chosen = choose_and_remark(file, PointOptions())
        job_requests(chosen, own)
    except UsageError as error:
        raise UsageError(f"{error}\n{file} does not fit {profile.name} as it is: edit it") from error
    for sentence in without_folder(chosen.points, own.data_roots):
        remark(sentence)
    if len(chosen.points) != sweep.points:
        remark(f"the study has {sweep.points} points, this sweep {len(chosen.points)}: only its last submission's is recorded")
