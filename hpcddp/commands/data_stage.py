"""`hpcddp data stage`: a prepared data set copied to another file system."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from hpcddp.commands.data_as_job import as_job
from hpcddp.commands.need_torch import need_torch

TEXT = """{title}, as it is prepared in ROOT, copied to OUT and checked. Needs torch.

    \b
    hpcddp data stage {name} --root $WORK/{name} --out $SCRATCH/{name}
    hpcddp data stage {name} --root '$WORK/{name}' --out '$SCRATCH/{name}' --cluster rcc --set account=abc01
    """

TITLES = {"bigmnist": "bigMNIST's shards", "imagenet": "ImageNet, its folders or its tar files"}


@click.group()
def stage() -> None:
    """Copy a large data set to a faster file system; run again, it goes on where it stopped.

    Every file is read again and compared before it has its name. Copies on each node's own disk, for one job, are made by
    workload.data.stage of a sweep.

    \b
    hpcddp data stage imagenet --root $WORK/imagenet --out $SCRATCH/imagenet
    """


def _command(name: str) -> click.Command:
    @click.option("--root", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder with the data.")
    @click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder for the copy.")
    @as_job("stage", name)
    def copy(root: Path, out: Path) -> None:
        need_torch()
        from hpcddp.data.writing.progress import Progress
        from hpcddp.data.writing.stage import stage_data

        staged = stage_data(name, root, out, progress=Progress("MB", sys.stderr), remark=partial(click.echo, err=True))
        click.echo(staged.words(out))

    return click.command(name, help=TEXT.format(name=name, title=TITLES[name]))(copy)


for each in TITLES:
    stage.add_command(_command(each))
