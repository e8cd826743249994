"""`hpcddp clusters`: what is known of each cluster, and from where."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcddp.commands import completion
from hpcddp.commands.options import (
    format_option,
    laying_out,
    print_json,
    read_settings,
    remark,
    remark_on,
    set_option,
    yes_option,
)
from hpcddp.core.errors import DIFFERS
from hpcddp.core.records import write_file

if TYPE_CHECKING:
    from hpcddp.submit.options import LayoutOptions


@click.group()
def clusters() -> None:
    """List cluster profiles, show one with its sources, or create one for this cluster.

    \b
    hpcddp clusters list
    hpcddp clusters show rcc
    hpcddp clusters detect -o mycluster.yaml
    """


@clusters.command("list")
@format_option
def list_(format_: str) -> None:
    """List the profiles that come with hpcddp, and your own.

    Your profiles are YAML files in ~/.config/hpcddp/clusters/; --cluster finds them by name.

    \b
    hpcddp clusters list --format json
    """
    from hpcddp.cluster.show import clusters_table, list_clusters, unreadable_profiles

    rows = list_clusters()
    for text in unreadable_profiles():
        remark(text)
    print_json(rows) if format_ == "json" else click.echo(clusters_table(rows))


@clusters.command()
@click.argument("name", shell_complete=completion.cluster_names)
@format_option
def show(name: str, format_: str) -> None:
    """Show a profile, by name or file, as YAML.

    Profiles that it extends are merged into it. Comments give the grade and source of each value.

    \b
    hpcddp clusters show marconi100
    hpcddp clusters show ./mycluster.yaml
    """
    from hpcddp.cluster.profile_file import load_profile
    from hpcddp.cluster.show import cluster_plain, show_cluster

    profile = load_profile(name)
    print_json(cluster_plain(profile)) if format_ == "json" else click.echo(show_cluster(profile), nl=False)


@clusters.command()
@click.option("-o", "target", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")
@click.option("--name", metavar="NAME", help="Name of the profile. Default: Slurm's cluster name.")
def detect(target: Path | None, name: str | None) -> None:
    """Create a profile from this machine's Slurm: nodes, GPUs, partitions, QOS, accounts. Takes at most 30 s.

    Facts that Slurm does not have (network, links, modules, disks) are null, with a note how to find them.

    \b
    hpcddp clusters detect
    hpcddp clusters detect -o mycluster.yaml
    hpcddp render --cluster mycluster.yaml --nodes 2
    """
    from hpcddp.cluster.profile_names import own_folder
    from hpcddp.detect.detect import detect_cluster

    if target is not None and target.exists():
        raise click.UsageError(f"{target} exists. Give -o another name, or check that one: `hpcddp clusters check {target}`.")
    is_own = target is not None and target.absolute().parent == own_folder()
    found = detect_cluster(name or (target.stem if target is not None and is_own else None))
    for text in found.remarks:
        remark(text)
    if target is None:
        click.echo(found.text, nl=False)
        return
    write_file(target, found.text)
    remark(f"written to {target}")


@clusters.command()
@click.argument("name", required=False, metavar="[NAME|FILE]", shell_complete=completion.cluster_names)
@format_option
@click.pass_context
def check(ctx: click.Context, name: str | None, format_: str) -> None:
    """Compare a profile with the live Slurm. Default: this machine's profile.

    Compares each field that Slurm reports. Exits with code 4 if a value differs, with 5 if Slurm does not answer.

    \b
    hpcddp clusters check rcc
    hpcddp clusters check ./mycluster.yaml --format json
    """
    from hpcddp.detect.check import check_cluster, comparison_plain, comparison_text, not_compared
    from hpcddp.submit.choose import pick_cluster

    profile = pick_cluster(name)
    found = check_cluster(profile)
    if format_ == "json":
        print_json(comparison_plain(profile, found))
    else:
        click.echo(comparison_text(profile, found))
        for text in not_compared(found):
            remark(text)
    ctx.exit(DIFFERS if found.has_drift else 0)


@clusters.command()
@click.argument("name", metavar="NAME|FILE", shell_complete=completion.cluster_names)
@laying_out
@set_option
@click.option("--runs", type=click.Path(file_okay=False, path_type=Path), help="Folder for the job's files. Default: ./survey.")
@yes_option
def survey(name: str, layout: LayoutOptions, settings: tuple[str, ...], runs: Path | None, yes: bool) -> None:
    """Measure a cluster's nodes with one short job, and print lines for its profile.

    The job finds processors, GPUs and their links, adapters and their speeds, driver, software and the node's own disk. With two
    nodes (the default) it also measures the latency between them. Prints values that the profile lacks or contradicts, as YAML
    with source and date.

    \b
    hpcddp clusters survey ./mycluster.yaml --set account=abc01
    hpcddp clusters survey ./mycluster.yaml --node-type a40 --nodes 1
    """
    from hpcddp.cluster.survey_facts import disagreements, survey_text
    from hpcddp.commands.submit import make_console
    from hpcddp.submit.options import PointOptions
    from hpcddp.submit.small_jobs import run_survey, survey_points

    chosen = remark_on(survey_points(layout, PointOptions(cluster=name, settings=settings)))
    found = run_survey(chosen, read_settings(), runs or Path("survey"), make_console(), yes=yes)
    for problem in [*found.problems, *(problem for node in found.nodes for problem in node.problems), *disagreements(found)]:
        remark(problem)
    node_type = str(chosen.points[0].point.layout.node_type or chosen.profile.default_node_type)
    text = survey_text(found, chosen.profile, node_type)
    remark(f"paste these lines into the profile {name}" if text else f"the profile {name} has all that the job found")
    click.echo(text, nl=False)
