"""`hpcddp data`: data sets made or checked on the login node, since compute nodes often have no internet."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Literal

import click

from hpcddp.commands.data_as_job import as_job
from hpcddp.commands.data_fetch import fetch
from hpcddp.commands.data_options import processes_option
from hpcddp.commands.data_pack import pack
from hpcddp.commands.data_verify import verify
from hpcddp.commands.need_torch import need_torch


def _all_variants() -> str:
    from hpcddp.core.point import VARIANTS

    return ",".join(VARIANTS)


@click.group()
def data() -> None:
    """Fetch, prepare, pack and verify data sets.

    \b
    hpcddp data prepare bigmnist --root $SCRATCH/bigmnist
    """


data.add_command(fetch)
data.add_command(pack)
data.add_command(verify)


@data.group()
def prepare() -> None:
    """Write a data set to disk; run again, it goes on where it stopped.

    \b
    hpcddp data prepare bigmnist --root $SCRATCH/bigmnist --copies 20
    """


@prepare.command()
@click.option("--root", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder to write to.")
@as_job("prepare", "digits")
def digits(root: Path) -> None:
    """Handwritten digits in CIFAR-10's shape, for its models where CIFAR-10 is not at hand.

    They are scikit-learn's 1,797, of which one in six is for evaluation. Needs torch and scikit-learn.

    \b
    hpcddp data prepare digits --root demo/digits
    """
    need_torch()
    from hpcddp.data.digits import sklearn_digits
    from hpcddp.data.writing.digits import prepare_digits

    found = prepare_digits(root, sklearn_digits())
    click.echo(f"{found:,} digits of scikit-learn's in {root}, 3 x 32 x 32; not CIFAR-10")


@prepare.command()
@click.option("--root", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder to write to.")
@click.option("--copies", default=200, show_default=True, type=click.IntRange(min=1), help="Copies of the six variants.")
@click.option("--variants", default=_all_variants, show_default="all six", help="Which variants, separated by commas.")
@click.option(
    "--digits", default="auto", show_default=True, type=click.Choice(["auto", "mnist", "sklearn"]), help="Where digits come from."
)
@click.option("--mnist-root", type=click.Path(path_type=Path), help="Folder of MNIST's four official files; by default ROOT.")
@click.option("--seed", default=1, show_default=True, type=click.IntRange(min=0), help="Of the random augmentations.")
@processes_option
@as_job("prepare", "bigmnist")
def bigmnist(
    root: Path,
    copies: int,
    variants: str,
    digits: Literal["auto", "mnist", "sklearn"],
    mnist_root: Path | None,
    seed: int,
    processes: int | None,
) -> None:
    """bigMNIST: six variants of MNIST's 60,000 digits, copied to 72,000,000 samples (about 56 GB of uint8).

    Needs torch. Digits are MNIST's official files where they are at hand, else scikit-learn's 1,797 upscaled.

    \b
    hpcddp data prepare bigmnist --root $SCRATCH/bigmnist
    hpcddp data prepare bigmnist --root demo/data --copies 4 --digits sklearn
    hpcddp data prepare bigmnist --root '$SCRATCH/bigmnist' --cluster rcc --set account=abc01
    """
    need_torch()
    from hpcddp.data.digits import find_digits
    from hpcddp.data.writing.pool import default_processes
    from hpcddp.data.writing.prepare import prepare_bigmnist
    from hpcddp.data.writing.progress import Progress

    found = find_digits(digits, mnist_root or root)
    click.echo(found.message, err=True)
    names = tuple(variants.split(","))
    manifest = prepare_bigmnist(
        root,
        digits=found,
        copies=copies,
        variants=names,
        seed=seed,
        progress=Progress("samples", sys.stderr),
        remark=partial(click.echo, err=True),
        processes=processes or default_processes(),
    )
    click.echo(f"{manifest.samples:,} samples in {root}")
