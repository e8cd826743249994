"""`hpcddp data pack`: many small files of a data set put into few large ones."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from hpcddp.commands.data_as_job import as_job
from hpcddp.commands.data_options import processes_option
from hpcddp.commands.need_torch import need_torch


@click.group()
def pack() -> None:
    """Put a data set's files into few large ones; run again, it goes on where it stopped.

    \b
    hpcddp data pack imagenet --root $SCRATCH/imagenet --out $SCRATCH/imagenet-tar
    """


@pack.command()
@click.option("--root", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder with train/ and val/.")
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder for the tar files.")
@processes_option
@as_job("pack", "imagenet")
def imagenet(root: Path, out: Path, processes: int | None) -> None:
    """ImageNet's folders as tar files in WebDataset's layout, with an index beside each.

    Sweeps read them where `data.root` is the folder of the tar files: the same samples in the same order. Needs torch.

    \b
    hpcddp data pack imagenet --root $SCRATCH/imagenet --out $SCRATCH/imagenet-tar
    """
    need_torch()
    from hpcddp.data.writing.pack import pack_imagenet
    from hpcddp.data.writing.pool import default_processes
    from hpcddp.data.writing.progress import Progress

    packed = pack_imagenet(
        root,
        out,
        progress=Progress("pictures", sys.stderr),
        remark=partial(click.echo, err=True),
        processes=processes or default_processes(),
    )
    unreadable = f", of which {packed.unreadable:,} cannot be read and are empty" if packed.unreadable else ""
    click.echo(f"{packed.pictures:,} pictures in {packed.shards} tar files in {out}{unreadable}")
