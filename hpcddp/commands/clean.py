"""`hpcddp clean`: remove files of a study that nothing needs any more."""

from __future__ import annotations

from pathlib import Path

import click

from hpcddp.commands.options import RunsPath


@click.command()
@click.argument("study", type=RunsPath(file_okay=False), default=".")
@click.option("-y", "--yes", is_flag=True, help="Remove the files instead of listing them.")
def clean(study: Path, yes: bool) -> None:
    """List, or remove, checkpoints and code that nothing needs.

    STUDY is a study's folder (default: this folder). Removed are checkpoints of runs that are done and of abandoned attempts, and
    snapshots of code that no job needs. Records stay, and all files of queued and running runs.

    \b
    hpcddp clean jobs/rcc-bigmnist
    hpcddp clean jobs/rcc-bigmnist --yes
    """
    from contextlib import nullcontext

    from hpcddp.core.run_root import single_study
    from hpcddp.core.text import escape_controls, size, table
    from hpcddp.study.clean import waste
    from hpcddp.study.status import study_states
    from hpcddp.study.study_folder import study_lock

    of = single_study(study.absolute())
    with study_lock(of) if yes else nullcontext():
        found = waste(of, study_states(of))
        if yes:
            for one in found:
                one.remove()
    if not found:
        click.echo("nothing to remove")
        return
    rows = [(one.path.relative_to(of.folder), one.why, size(one.bytes)) for one in found]
    click.echo(escape_controls(table(("path", "why", "size"), rows, left=("path", "why"))))
    total = size(sum(one.bytes for one in found))
    click.echo(f"{total} removed" if yes else f"{total} to remove: hpcddp clean {study} --yes")
