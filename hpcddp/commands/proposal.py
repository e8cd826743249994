"""`hpcddp proposal`: the page an application for computing time asks for."""

from __future__ import annotations

from pathlib import Path

import click

from hpcddp.commands.options import style_option
from hpcddp.commands.runs_path import RunsPath

ENDINGS = {"markdown": "md", "latex": "tex"}


@click.command()
@click.argument("study", type=RunsPath())
@click.option("--nodes", type=click.IntRange(min=1), metavar="N", help="The job size; by default the largest that is efficient.")
@click.option("--epochs", type=click.IntRange(min=1), metavar="N", help="Epochs of one training; else the sweep's.")
@click.option("--runs", "trainings", type=click.IntRange(min=1), default=1, metavar="N", help="Trainings that are planned.")
@click.option("--format", "format_", type=click.Choice(list(ENDINGS)), default="markdown", show_default=True, help="Of the page.")
@click.option("-o", "output", type=click.Path(file_okay=False, path_type=Path), help="Folder for the page and its figures.")
@style_option
def proposal(
    study: Path, nodes: int | None, epochs: int | None, trainings: int, format_: str, output: Path | None, style: str
) -> None:
    """Write the page an application for computing time asks for.

    Scaling against one GPU and one node, the size of job that speaks for,
    its node hours, hardware and software, and the runs behind each number.
    The size is the largest of full nodes with at least 70 % efficiency
    against one node. STUDY is a folder or a bundle.

    \b
    hpcddp proposal jobs/rcc-bigmnist --epochs 90 --runs 5
    hpcddp proposal jobs/rcc-bigmnist --epochs 90 --format latex -o proposal
    """
    from hpcddp.analysis.proposal.page import page
    from hpcddp.analysis.proposal.proposal import propose
    from hpcddp.analysis.proposal.write import to_latex, to_markdown
    from hpcddp.runroot import single_study
    from hpcddp.textout import inert
    from hpcddp.unbundle import opened

    with opened(study) as root:
        found = propose(single_study(root), nodes, epochs, trainings)
    write = to_latex if format_ == "latex" else to_markdown
    if output is None:
        click.echo(inert(write(page(found))), nl=False)
        return
    from hpcddp.analysis.figures.style import STYLES, save
    from hpcddp.analysis.proposal.figures import draw

    figures = draw(found, STYLES[style])
    output.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        save(figure, output / name, STYLES[style])
    file = output / f"proposal.{ENDINGS[format_]}"
    file.write_text(write(page(found, list(figures))), encoding="utf-8")
    click.echo(file)
