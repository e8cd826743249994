"""`hpcddp analyze`: records in, tables and figures out."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path

import click

from hpcddp.commands.options import RunsPath, co2_option, format_option, print_json, style_option


def _listed(ctx: click.Context, param: click.Parameter, given: str | None) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, (given or "").split(","))))


@click.command()
@click.argument("runs", type=RunsPath())
@click.option("-o", "output", type=click.Path(path_type=Path), help="Folder for the report; by default report/ in each study.")
@click.option("--epochs", type=click.IntRange(min=1), metavar="N", help="Epochs of a whole training; else the sweep's.")
@click.option("--overlay", multiple=True, metavar="NAME", help="Draw published points beside the throughput, such as marconi100.")
@click.option("--overlay-rejected", is_flag=True, help="With --overlay, also draw published points that are not trustworthy.")
@click.option("--full", is_flag=True, help="Print all tables, verdicts and notes; write all files (Parquet with --to).")
@click.option("--to", metavar="FORMATS", callback=_listed, help="Also write some of csv,latex,markdown,parquet,pdf.")
@click.option("--columns", metavar="NAMES", callback=_listed, help="Columns of the scaling table, by their names in scaling.csv.")
@co2_option
@style_option
@format_option
@click.pass_context
def analyze(
    ctx: click.Context,
    runs: Path,
    output: Path | None,
    epochs: int | None,
    overlay: tuple[str, ...],
    overlay_rejected: bool,
    full: bool,
    to: tuple[str, ...],
    columns: tuple[str, ...],
    co2_g_per_kwh: float | None,
    style: str,
    format_: str,
) -> None:
    """Print how a study scales, what limits it and what to do next.

    Each study under RUNS, or in a bundle, gets a page, scaling.csv,
    report.json and figures in report/. The command exits with code 3 if
    runs are missing, no run passes, or a file could not be read or
    written. It exits with code 1 if one of several studies is damaged.

    \b
    hpcddp analyze jobs/
    hpcddp analyze jobs/rcc-bigmnist --full
    hpcddp analyze jobs/rcc-bigmnist --columns nodes,samples_per_s,efficiency
    hpcddp analyze jobs/marconi100-resnet50 --epochs 90
    hpcddp analyze jobs/ --overlay marconi100 --overlay kempner-a100
    """
    gc.set_threshold(50_000)  # nearly all objects live to the end: looking for garbage among them took a tenth of the time

    from hpcddp.analysis import How
    from hpcddp.analysis import analyze as analyze_runs
    from hpcddp.analysis.report.result import PLAINLY
    from hpcddp.analysis.util.files import user_cache_folder
    from hpcddp.analysis.util.wording import WIDE
    from hpcddp.core.errors import FAILED, INCOMPLETE
    from hpcddp.core.text import escape_controls
    from hpcddp.share.unbundle import opened_study

    if runs.is_file():
        output = output or user_cache_folder("reports", runs)
    to += PLAINLY.to if full else ()
    with opened_study(runs) as root:
        results = analyze_runs(root, output, How(overlay, overlay_rejected, epochs, style, co2_g_per_kwh, to, columns))
    if format_ == "json":
        print_json({"schema": 1, "studies": [result.plain for result in results]})
    else:
        width = shutil.get_terminal_size((WIDE, 0)).columns
        click.echo(escape_controls("\n\n".join(result.text_in(width) if full else result.screen for result in results)))
    if any(result.damaged or result.incomplete for result in results):
        ctx.exit(FAILED if any(result.damaged for result in results) else INCOMPLETE)
