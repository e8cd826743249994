"""`hpcddp proposal`: the page an application for computing time asks for."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from hpcddp.commands.options import RunsPath, co2_option, remark, style_option

ENDINGS = {"markdown": "md", "latex": "tex"}


@click.command()
@click.argument("study", type=RunsPath())
@click.option("--nodes", type=click.IntRange(min=1), metavar="N", help="Job size in nodes. Default: the largest efficient one.")
@click.option("--epochs", type=click.IntRange(min=1), metavar="N", help="Epochs of one training. Default: the sweep's.")
@click.option("--runs", "trainings", type=click.IntRange(min=1), default=1, metavar="N", help="Number of planned trainings.")
@click.option("--format", "format_", type=click.Choice(list(ENDINGS)), default="markdown", show_default=True, help="Page format.")
@click.option("-o", "output", type=click.Path(file_okay=False, path_type=Path), help="Folder for the page and its figures.")
@co2_option
@style_option
@click.pass_context
def proposal(
    ctx: click.Context,
    study: Path,
    nodes: int | None,
    epochs: int | None,
    trainings: int,
    format_: str,
    output: Path | None,
    co2_g_per_kwh: float | None,
    style: str,
) -> None:
    """Write the technical page of an application for computing time.

    It has the scaling against one GPU and one node, the job size and its
    node hours. GPU use, hardware, software and the runs of each number follow.
    The job size is the largest of full nodes with at least 70 % efficiency
    against one node. STUDY is a folder or a bundle. Exits with code 3 if a
    figure could not be drawn.

    \b
    hpcddp proposal jobs/rcc-bigmnist --epochs 90 --runs 5
    hpcddp proposal jobs/rcc-bigmnist --epochs 90 --format latex -o proposal
    """
    from hpcddp.analysis.proposal.blocks import to_latex, to_markdown
    from hpcddp.analysis.proposal.page import page
    from hpcddp.analysis.proposal.proposal import propose
    from hpcddp.analysis.util.files import Failures
    from hpcddp.core.errors import INCOMPLETE
    from hpcddp.core.run_root import single_study
    from hpcddp.core.text import escape_controls
    from hpcddp.share.unbundle import opened_study

    with opened_study(study) as root:
        found = propose(single_study(root), nodes, epochs, trainings, co2_g_per_kwh)
    write = to_latex if format_ == "latex" else to_markdown
    if output is None:
        click.echo(escape_controls(write(page(found))), nl=False)
        return
    from hpcddp.analysis.figures.style import STYLES, save
    from hpcddp.analysis.proposal.page import drawings
    from hpcddp.analysis.util.files import write_text

    failures, figures = Failures(), drawings(found, STYLES[style])

    def save_as(name: str) -> list[Path]:
        return save(figures[name](), output / name, STYLES[style])

    drawn = [name for name in figures if failures.contain(name, partial(save_as, name), list[Path]())]
    file = output / f"proposal.{ENDINGS[format_]}"
    write_text(file, write(page(found, drawn)))
    click.echo(file)
    for failure in failures:
        remark(escape_controls(f"failed: the figure `{failure.of}`: {failure.reason}"))
    if failures:
        ctx.exit(INCOMPLETE)
