"""`hpcddp audit`: what in someone else's table of results does not add up."""

from __future__ import annotations

from pathlib import Path

import click

from hpcddp.commands.options import format_option, print_json, remark


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@format_option
@click.pass_context
def audit(ctx: click.Context, files: tuple[Path, ...], format_: str) -> None:
    """Check published numbers: averages, speedups, baselines, hardware.

    FILES contain tables with numbers as printed: Markdown within a page,
    LaTeX, CSV or TSV. A table has one line of headers and a row for each
    measurement. Columns, or other usual names for them:

    \b
      size      gpus, nodes, gpus_per_node; or words: `8x A100`, `2 nodes x 4`
      result    time (s, or m:ss, h:mm:ss), throughput; s/epoch, it/s, img/s,
                img/s/GPU
      claim     speedup, efficiency (`vs 1 GPU`)
      hardware  node_list, gpu_type
      work      batch_per_gpu, grad_accum, global_batch, samples, steps
      runs      run, or `rank 0` for ranks of one run; a row with run `avg` is
                the average of the others

    All other columns of words and of numeric settings distinguish rows.
    Lines before the header of a CSV file that begin with `#` are notes.
    A number is wrong only if no value that rounds to its digits fits.
    Exits with code 4 if a number is wrong, else with 0.

    \b
    hpcddp audit results.csv
    hpcddp audit README.md paper.tex
    hpcddp audit results.csv --format json
    """
    from hpcddp.analysis.audit.audit import audits
    from hpcddp.core.errors import DIFFERS
    from hpcddp.core.text import escape_controls

    found = [each for file in files for each in audits(file)]
    for text in (text for each in found for text in each.remarks):
        remark(escape_controls(text))
    if format_ == "json":
        print_json(found[0].plain if len(found) == 1 else {"schema": 1, "tables": [each.plain for each in found]})
    else:
        click.echo(escape_controls("\n\n".join(each.text for each in found)))
    if any(each.findings for each in found):
        ctx.exit(DIFFERS)
