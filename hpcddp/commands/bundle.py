"""`hpcddp bundle`: a study as one file."""

from __future__ import annotations

from pathlib import Path

import click

from hpcddp.commands.options import RunsPath, remark
from hpcddp.core.text import thousands


@click.command()
@click.argument("study", type=RunsPath(file_okay=False))
@click.option("-o", "output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file. Default: STUDY.tar.gz.")
@click.option("--pseudonymise", is_flag=True, help="Replace names of hosts, users, accounts and their folders; omit logs.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.option("-y", "--yes", is_flag=True, help="Write the bundle even if it contains names that --pseudonymise cannot replace.")
def bundle(study: Path, output: Path | None, pseudonymise: bool, force: bool, yes: bool) -> None:
    """Pack a study into one archive that analyzes the same elsewhere.

    It contains records, scripts and logs, never pickles. --pseudonymise
    replaces names by node01, user, account, /path. Names of clusters,
    models and data sets stay. Other words that look like names are listed;
    then nothing is written without --yes.

    \b
    hpcddp bundle jobs/rcc-bigmnist
    hpcddp bundle jobs/rcc-bigmnist -o shared.tar.gz --pseudonymise
    """
    from hpcddp.core.run_root import single_study
    from hpcddp.core.text import count, size
    from hpcddp.share.bundle import STRANGE, remaining_words, write_bundle

    found = single_study(study)
    out = output or Path(f"{found.folder.resolve().name}.tar.gz")
    packed = write_bundle(found, out, pseudonymise, force, yes)
    held = ", ".join(f"{thousands(number)} {kind}" for kind, number in sorted(packed.files.items()))
    click.echo(f"{out}: {size(packed.size_bytes)}, {count(sum(packed.files.values()), 'file')} ({held})")
    expected = {reason: number for reason, number in packed.left_out.items() if reason != STRANGE}
    if expected:
        kinds = ", ".join(f"{thousands(number)} {reason.partition(':')[0]}" for reason, number in sorted(expected.items()))
        remark(f"omitted: {count(sum(expected.values()), 'file')} that the analysis does not need ({kinds})")
    if STRANGE in packed.left_out:
        more = ", ..." if packed.left_out[STRANGE] > len(packed.strange) else ""
        remark(f"omitted: {count(packed.left_out[STRANGE], 'file')}, {STRANGE}: {', '.join(packed.strange)}{more}")
    for sentence in remaining_words(packed.remaining):
        remark(sentence)
