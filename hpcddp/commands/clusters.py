"""`hpcddp clusters`: what is known of each cluster, and from where."""

from __future__ import annotations

import click

from hpcddp.commands.options import format_option, print_json, remark


@click.group()
def clusters() -> None:
    """List the clusters, or show one with its sources.

    \b
    hpcddp clusters list
    hpcddp clusters show rcc
    """


@clusters.command("list")
@format_option
def list_(format_: str) -> None:
    """List the profiles that come with hpcddp, and your own.

    Yours are YAML files in ~/.config/hpcddp/clusters/, which --cluster finds by name.

    \b
    hpcddp clusters list --format json
    """
    from hpcddp.cluster.show import clusters_table, list_clusters, unreadable_profiles

    rows = list_clusters()
    for text in unreadable_profiles():
        remark(text)
    print_json(rows) if format_ == "json" else click.echo(clusters_table(rows))


@clusters.command()
@click.argument("name")
@format_option
def show(name: str, format_: str) -> None:
    """Show a profile, by name or YAML file.

    \b
    hpcddp clusters show marconi100
    hpcddp clusters show ./mycluster.yaml
    """
    from hpcddp.cluster.profile_file import load_profile
    from hpcddp.cluster.show import cluster_plain, show_cluster

    profile = load_profile(name)
    print_json(cluster_plain(profile)) if format_ == "json" else click.echo(show_cluster(profile))
