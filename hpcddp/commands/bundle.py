"""`hpcddp bundle`: a study as one file."""

from __future__ import annotations

from pathlib import Path

import click

from hpcddp.commands.options import remark
from hpcddp.commands.runs_path import RunsPath


@click.command()
@click.argument("study", type=RunsPath(file_okay=False))
@click.option("-o", "output", type=click.Path(dir_okay=False, path_type=Path), help="The file; by default STUDY.tar.gz here.")
@click.option("--pseudonymise", is_flag=True, help="Replace names of hosts, users, accounts, and their folders; leave logs out.")
@click.option("--force", is_flag=True, help="Replace the file where it is there already.")
def bundle(study: Path, output: Path | None, pseudonymise: bool, force: bool) -> None:
    """Pack a study into one archive that analyzes the same elsewhere.

    Records, scripts, predictions and logs; never pickles. With
    --pseudonymise the same name becomes the same word everywhere: node01,
    user, account. Names of clusters, models and data sets stay.

    \b
    hpcddp bundle jobs/rcc-bigmnist
    hpcddp bundle jobs/rcc-bigmnist -o shared.tar.gz --pseudonymise
    """
    from hpcddp.bundle import STRANGE, pack
    from hpcddp.runroot import single_study
    from hpcddp.textout import count, size

    found = single_study(study)
    out = output or Path(f"{found.folder.resolve().name}.tar.gz")
    packed = pack(found, out, pseudonymise, force)
    held = ", ".join(f"{number:,} {kind}" for kind, number in sorted(packed.files.items()))
    click.echo(f"{out}: {size(packed.size_bytes)}, {count(sum(packed.files.values()), 'file')} ({held})")
    for reason, number in sorted(packed.left_out.items()):
        more = ", ..." if number > len(packed.strange) else ""
        which = f": {', '.join(packed.strange)}{more}" if reason == STRANGE else ""
        remark(f"left out: {count(number, 'file')}, {reason}{which}")
    for file, names in sorted(packed.remaining.items()):
        remark(f"{file} still has {', '.join(names)}: part of what was run, so it stays; look whether it may be given away")
