"""`hpcddp studies`: the published studies that come as sweeps, and where each is described."""

from __future__ import annotations

import click

from hpcddp.commands.options import format_option, print_json


@click.command()
@format_option
def studies(format_: str) -> None:
    """List the published studies that come as sweeps, and the page of each.

    A page has the question, the published numbers, errors in them, and how the sweep measures them.

    \b
    hpcddp studies
    hpcddp studies --format json
    """
    from hpcddp.sweep.shipped import shipped_sweeps, studies_plain, studies_table

    sweeps = shipped_sweeps()
    print_json(studies_plain(sweeps)) if format_ == "json" else click.echo(studies_table(sweeps))
