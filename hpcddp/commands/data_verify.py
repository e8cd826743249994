"""`hpcddp data verify`: everything of a data set read, and compared with what it should be."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcddp.commands.data_as_job import as_job
from hpcddp.commands.data_options import processes_option
from hpcddp.commands.need_torch import need_torch

if TYPE_CHECKING:
    from hpcddp.data.writing.verified import Verified

root_option = click.option("--root", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder to read.")


@click.group()
def verify() -> None:
    """Read all of a data set, and name what is damaged.

    \b
    hpcddp data verify bigmnist --root $SCRATCH/bigmnist
    """


@verify.command()
@root_option
@processes_option
@as_job("verify", "bigmnist")
def bigmnist(root: Path, processes: int | None) -> None:
    """Every shard against the checksums of the manifest.

    \b
    hpcddp data verify bigmnist --root $SCRATCH/bigmnist
    """
    need_torch()
    from hpcddp.data.writing.pool import default_processes
    from hpcddp.data.writing.progress import Progress
    from hpcddp.data.writing.verify_bigmnist import verify_bigmnist

    _say(verify_bigmnist(root, progress=Progress("samples", sys.stderr), processes=processes or default_processes()))


@verify.command()
@root_option
@processes_option
@as_job("verify", "imagenet")
def imagenet(root: Path, processes: int | None) -> None:
    """Every picture decoded, of folders or of tar files, and every tar file against its checksum.

    \b
    hpcddp data verify imagenet --root $SCRATCH/imagenet-tar
    """
    need_torch()
    from hpcddp.data.writing.pool import default_processes
    from hpcddp.data.writing.progress import Progress
    from hpcddp.data.writing.verify_imagenet import verify_imagenet

    _say(verify_imagenet(root, progress=Progress("pictures", sys.stderr), processes=processes or default_processes()))


@verify.command()
@root_option
def mnist(root: Path) -> None:
    """MNIST's four files against their official MD5.

    \b
    hpcddp data verify mnist --root $SCRATCH/mnist
    """
    _verify_official("mnist", root)


@verify.command()
@root_option
def cifar10(root: Path) -> None:
    """CIFAR-10's archive against its official MD5.

    \b
    hpcddp data verify cifar10 --root $SCRATCH/cifar10
    """
    _verify_official("cifar10", root)


def _verify_official(name: str, root: Path) -> None:
    need_torch()
    from hpcddp.data.writing.verify_official import verify_official

    _say(verify_official(name, root))


def _say(verified: Verified) -> None:
    for line in verified.lines():
        click.echo(line)
    click.echo(verified.sentence())
