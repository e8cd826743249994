"""`hpcddp data fetch`: official files of data sets, downloaded where somebody asks for it and nowhere else."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from hpcddp.core.official_files import CIFAR10, MNIST, OfficialSet


@click.group()
def fetch() -> None:
    """Download a data set's official files; each is checked before it has its name. Needs no torch.

    \b
    hpcddp data fetch cifar10 --root $SCRATCH/cifar10
    """


def _options(command: Any) -> Any:
    """The same for every data set."""
    root = click.option("--root", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder to write to.")
    mirror = click.option("--mirror", metavar="URL", help="Address below which the files lie; by default the publisher's.")
    return root(mirror(command))


@fetch.command()
@_options
def cifar10(root: Path, mirror: str | None) -> None:
    """CIFAR-10 in its binary version, 170 MB.

    From https://www.cs.toronto.edu/~kriz/cifar.html, which has its checksum.

    \b
    hpcddp data fetch cifar10 --root $SCRATCH/cifar10
    """
    _fetch(CIFAR10, root, mirror)


@fetch.command()
@_options
def mnist(root: Path, mirror: str | None) -> None:
    """MNIST in its four files, 12 MB.

    bigMNIST is made of them, too, where they lie in its folder.

    \b
    hpcddp data fetch mnist --root $SCRATCH/mnist
    """
    _fetch(MNIST, root, mirror)


def _fetch(official: OfficialSet, root: Path, mirror: str | None) -> None:
    from hpcddp.core.text import size
    from hpcddp.data.writing.fetch import fetch as fetch_files
    from hpcddp.data.writing.fetch import read_instead
    from hpcddp.data.writing.progress import Progress

    fetched = fetch_files(official, root, mirror=mirror, progress=Progress("bytes", sys.stderr), remark=_remark)
    for file in official.files:
        how = "fetched" if file in fetched else "was there"
        click.echo(f"{file.name}, {size(file.size_bytes)}: {how}")
    click.echo(f"in {root}, with the sizes and checksums of their publisher")
    for path in read_instead(official, root):
        _remark(f"{path} is read in place of what was fetched, and is not the official file: remove it")


def _remark(text: str) -> None:
    click.echo(text, err=True)
