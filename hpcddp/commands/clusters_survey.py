"""`hpcddp clusters survey`: what no Slurm knows of a cluster's nodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcddp.commands import complete
from hpcddp.commands.options import laying_out, read_settings, remark, remark_on, set_option, yes_option
from hpcddp.commands.submit import make_console

if TYPE_CHECKING:
    from hpcddp.submit.options import LayoutOptions


@click.command()
@click.argument("name", metavar="NAME|FILE", shell_complete=complete.clusters)
@laying_out
@set_option
@click.option("--runs", type=click.Path(file_okay=False, path_type=Path), help="Where the job's files go; by default ./survey.")
@yes_option
def survey(name: str, layout: LayoutOptions, settings: tuple[str, ...], runs: Path | None, yes: bool) -> None:
    """Print the lines of a profile that one short job on its nodes fills in.

    Processors, GPUs with their links, adapters with their speeds, driver and software, the node's own disk, and with two nodes
    (the default) the latency between them: what the profile lacks or says otherwise, as YAML with source and date.

    \b
    hpcddp clusters survey ./mycluster.yaml --set account=abc01
    hpcddp clusters survey ./mycluster.yaml --node-type a40 --nodes 1
    """
    from hpcddp.cluster.survey_facts import disagreements, survey_text
    from hpcddp.submit.options import PointOptions
    from hpcddp.submit.small_jobs import run_survey, survey_points

    chosen = remark_on(survey_points(layout, PointOptions(cluster=name, settings=settings)))
    found = run_survey(chosen, read_settings(), runs or Path("survey"), make_console(), yes=yes)
    for problem in [*found.problems, *(problem for node in found.nodes for problem in node.problems), *disagreements(found)]:
        remark(problem)
    node_type = str(chosen.points[0].point.layout.node_type or chosen.profile.default_node_type)
    text = survey_text(found, chosen.profile, node_type)
    remark(f"paste these lines into the profile {name}" if text else f"nothing that the profile {name} lacks")
    click.echo(text, nl=False)
