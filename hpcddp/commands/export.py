"""`hpcddp export`: runs for TensorBoard or Weights & Biases."""

from __future__ import annotations

from pathlib import Path

import click

from hpcddp.commands.options import RunsPath, remark

TARGETS = ("tensorboard", "wandb")


@click.command()
@click.argument("runs", type=RunsPath())
@click.option("--to", "target", type=click.Choice(TARGETS), required=True, help="What shall show them.")
@click.option(
    "-o", "output", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder to write to: new, or empty."
)
def export(runs: Path, target: str, output: Path) -> None:
    """Write runs as TensorBoard or Weights & Biases have them.

    From the records of every study under RUNS, or of a bundle; nothing is
    sent. Each run has its point as parameters, its means, and of every
    step its time (mean over ranks) and throughput. Rejected runs are
    tagged as such. Needs pip install 'hpcddp[tensorboard]' or [wandb].

    \b
    hpcddp export jobs/ --to tensorboard -o exported
    hpcddp export jobs/rcc-bigmnist --to wandb -o exported
    """
    import importlib

    from hpcddp.analysis.export.exported import exported
    from hpcddp.core.errors import UsageError
    from hpcddp.core.run_root import studies
    from hpcddp.core.text import count
    from hpcddp.share.unbundle import opened_study

    if output.is_dir() and any(output.iterdir()):
        raise UsageError(f"{output} is not empty; name a new folder, or remove it: runs would be there twice")
    writer = importlib.import_module(f"hpcddp.analysis.export.to_{target}")
    with opened_study(runs) as root:
        found = [exported(study) for study in studies(root)]
        if not found:
            raise UsageError(f"{runs}: no study in it; name the folder `hpcddp submit` wrote to, or the one above")
        if not any(study.done for study in found):
            raise UsageError(f"{runs}: no training run is done yet; `hpcddp status {runs}` says what they do")
        written = writer.write(found, output)
    missing, unknown = sum(study.missing for study in found), sum(study.unknown for study in found)
    if missing:
        remark(f"left out: {count(missing, 'run')} that {'is' if missing == 1 else 'are'} not done")
    if unknown:
        remark(f"left out: {count(unknown, 'run')} whose point.json is damaged or missing; `hpcddp analyze` says which")
    click.echo(f"{count(written, 'run')} in {output}: {writer.view(output)}")
