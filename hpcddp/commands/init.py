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

    \b
    hpcddp init
    hpcddp init rcc-bigmnist
    """
    from hpcddp.core.errors import UsageError
    from hpcddp.core.schema import did_you_mean

    shipped = {file.stem: file for file in sorted((Path(__file__).parent.parent / "sweeps").glob("*.yaml"))}
    if name is None:
        click.echo("\n".join(shipped))
        return
    if name not in shipped:
        raise UsageError(f"no sweep `{name}` comes with hpcddp{did_you_mean(name, shipped)}")
    target = output or Path(f"{name}.yaml")
    try:
        with target.open("x", encoding="utf-8") as out:
            out.write(shipped[name].read_text(encoding="utf-8"))
    except FileExistsError as error:
        raise UsageError(f"{target} is already there; give -o another name, or remove it first") from error
    click.echo(f"{target}: edit it, then `hpcddp plan {shlex.quote(str(target))}`", err=True)
