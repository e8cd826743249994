"""`hpcddp init`: a shipped sweep to edit."""

from __future__ import annotations

import shlex
from pathlib import Path

import click


@click.command()
@click.argument("name", required=False)
@click.option("-o", "output", type=click.Path(path_type=Path), help="File to write; by default NAME.yaml here.")
def init(name: str | None, output: Path | None) -> None:
    """Copy a shipped sweep to edit; without a name, list them.

    `hpcddp studies` says which of them repeat a published study, and where each is described.

    \b
    hpcddp init
    hpcddp init rcc-bigmnist
    """
    from hpcddp.core.errors import UsageError
    from hpcddp.sweep.shipped import for_editing, shipped_sweep, shipped_sweeps, sweeps_table

    if name is None:
        click.echo(sweeps_table(shipped_sweeps()))
        return
    sweep = shipped_sweep(name)
    target = output or Path(f"{name}.yaml")
    try:
        with target.open("x", encoding="utf-8") as out:
            out.write(for_editing(sweep.text))
    except FileExistsError as error:
        raise UsageError(f"{target} is already there; give -o another name, or remove it first") from error
    click.echo(f"{target}: edit it, then `hpcddp plan {shlex.quote(str(target))}`", err=True)
