"""`hpcddp analyze`: records in, tables and figures out."""

from __future__ import annotations

from pathlib import Path

import click

from hpcddp.commands.options import format_option, print_json


@click.command()
@click.argument("runs", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("-o", "output", type=click.Path(path_type=Path), help="Folder for the report; by default report/ in each study.")
@format_option
@click.pass_context
def analyze(ctx: click.Context, runs: Path, output: Path | None, format_: str) -> None:
    """Print scaling tables and write figures and CSV files.

    Of every study under RUNS. Ends with 3 where points are missing.

    \b
    hpcddp analyze jobs/
    hpcddp analyze jobs/rcc-bigmnist --format json
    """
    from hpcddp.analysis import analyze as analyze_runs
    from hpcddp.errors import INCOMPLETE

    results = analyze_runs(runs, output)
    if format_ == "json":
        print_json({"schema": 1, "studies": [result.plain for result in results]})
    else:
        click.echo("\n\n".join(result.text for result in results))
    if any(result.missing for result in results):
        ctx.exit(INCOMPLETE)
