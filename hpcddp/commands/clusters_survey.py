"""`hpcddp clusters survey`: fills in what no Slurm knows of a cluster's nodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcddp.commands.options import laying_out, read_settings, remark, remark_on, set_option, yes_option
from hpcddp.core.records import write_file

if TYPE_CHECKING:
    from hpcddp.cluster.profile import ClusterProfile
    from hpcddp.core.survey_record import SurveyRecord
    from hpcddp.submit.choose import ChosenPoints
    from hpcddp.submit.options import LayoutOptions


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@laying_out
@set_option
@click.option("--runs", type=click.Path(file_okay=False, path_type=Path), help="Where the job's files go; by default ./survey.")
@yes_option
def survey(file: Path, layout: LayoutOptions, settings: tuple[str, ...], runs: Path | None, yes: bool) -> None:
    """Fill in a profile by one short job on its nodes.

    Processors, GPUs with their links, adapters with their speeds, RoCE's addresses, driver and software, the node's own disk,
    and with two nodes (the default) the latency between them. A value that the file has from another source stays, with the
    survey's beside it.

    \b
    hpcddp clusters survey ./mycluster.yaml --set account=abc01
    hpcddp clusters survey ./mycluster.yaml --node-type a40 --nodes 1
    """
    from hpcddp.cluster.profile_file import read_profile
    from hpcddp.cluster.survey_facts import disagreements
    from hpcddp.submit.options import PointOptions
    from hpcddp.submit.survey import survey_points

    chosen = remark_on(survey_points(layout, PointOptions(cluster=str(file), settings=settings)))
    found = _run(chosen, runs or Path("survey"), yes)
    for problem in [*found.problems, *(problem for node in found.nodes for problem in node.problems), *disagreements(found)]:
        remark(problem)
    _update(file, read_profile(file), chosen, found)


def _run(chosen: ChosenPoints, folder: Path, yes: bool) -> SurveyRecord:
    from hpcddp.backends.choose import make_backend
    from hpcddp.core.run_root import Study
    from hpcddp.core.text import count
    from hpcddp.submit.submission_plan import check_plan, plan_submission
    from hpcddp.submit.survey import run_survey

    plan = plan_submission(chosen, read_settings())
    check_plan(plan)
    (request,) = plan.requests.values()
    minutes = f"at most {request.walltime_min} min on {count(request.nodes, 'node')}"
    if not yes:
        click.confirm(f"Submit one job, {minutes}?", abort=True, err=True)
    study = Study(folder.absolute())
    return run_survey(study, plan, make_backend(chosen.profile.backend, study, rules=chosen.profile.slurm))


def _update(file: Path, profile: ClusterProfile, chosen: ChosenPoints, found: SurveyRecord) -> None:
    from hpcddp.cluster.survey_facts import software_words, survey_values
    from hpcddp.cluster.survey_update import update_profile

    node_type = str(chosen.points[0].point.layout.node_type or profile.default_node_type)
    hosts = ", ".join(node.host for node in found.nodes)
    source = ", ".join(filter(None, (f"hpcddp clusters survey of {found.date}, job {found.job}", software_words(found))))
    values = survey_values(found, node_type)
    update = update_profile(file.read_text(encoding="utf-8"), profile, values, source, f"{found.date}, {hosts}")
    for text in update.conflicts:
        remark(text)
    if not update.filled and not update.conflicts:
        click.echo(f"{file}: the survey found nothing that the profile lacks")
        return
    _write(file, update.text)
    click.echo("\n".join([f"{file}: filled in from {hosts}", *(f"  {text}" for text in update.filled)]))


def _write(file: Path, text: str) -> None:
    """In one move, once the new text is known to be a profile."""
    import os
    import shutil

    from hpcddp.cluster.profile_file import read_profile

    part = file.with_name(f".{file.name}.{os.getpid()}.yaml")
    try:
        write_file(part, text)
        read_profile(part)
        shutil.copymode(file, part)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
