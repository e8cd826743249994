"""`hpcddp export`: runs for TensorBoard or Weights & Biases."""

from __future__ import annotations

from pathlib import Path

import click

from hpcddp.commands.options import RunsPath, remark

NAMES = ("tensorboard", "wandb")


@click.command()
@click.argument("runs", type=RunsPath())
@click.option("--to", "target", type=click.Choice(NAMES), required=True, help="Tool to write for.")
@click.option(
    "-o",
    "output",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Write to this folder; it must be new or empty.",
)
def export(runs: Path, target: str, output: Path) -> None:
    """Write runs for TensorBoard or Weights & Biases.

    Reads the records of every study under RUNS, or of a bundle, and sends
    nothing. Each run has its point as parameters, its means, and each
    step's time (mean over ranks) and throughput. Rejected runs are tagged.
    Needs pip install 'hpcddp[tensorboard]' or [wandb].

    \b
    hpcddp export jobs/ --to tensorboard -o exported
    hpcddp export jobs/rcc-bigmnist --to wandb -o exported
    """
    from hpcddp.analysis.export.exported import exported
    from hpcddp.analysis.export.targets import TARGETS
    from hpcddp.core.errors import UsageError
    from hpcddp.core.run_root import studies
    from hpcddp.core.text import count
    from hpcddp.share.unbundle import opened_study

    if output.is_dir() and any(output.iterdir()):
        raise UsageError(f"{output} is not empty. Give a new folder, or remove this one, so that no run appears twice.")
    write, view = TARGETS[target]
    with opened_study(runs) as root:
        found = [exported(study) for study in studies(root)]
        if not found:
            raise UsageError(f"{runs} contains no study. Give the folder that `hpcddp submit` wrote to, or the one above it.")
        if not any(study.done for study in found):
            raise UsageError(f"{runs} has no finished training run yet. Show their state with `hpcddp status {runs}`.")
        written = write(found, output)
    missing, unknown = sum(study.missing for study in found), sum(study.unknown for study in found)
    if missing:
        remark(f"omitted: {count(missing, 'run')} that {'is' if missing == 1 else 'are'} not done")
    if unknown:
        remark(f"omitted: {count(unknown, 'run')} whose point.json is damaged or missing; `hpcddp analyze` lists each")
    click.echo(f"{count(written, 'run')} in {output}: {view.format(folder=output)}")
