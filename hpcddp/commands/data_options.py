"""Options that commands of `hpcddp data` share."""

from __future__ import annotations

import click

processes_option = click.option(
    "--processes", type=click.IntRange(min=1), help="How many work at once; by default as many as there are processors, up to 8."
)
