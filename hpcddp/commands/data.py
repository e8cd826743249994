"""`hpcddp data`: data sets made or checked on the login node, since compute nodes often have no internet, or by a job."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from hpcddp.commands import completion
from hpcddp.commands.options import after_option, job_option, read_settings, remark_on, yes_option
from hpcddp.core.official_files import CIFAR10, MNIST, OfficialSet

if TYPE_CHECKING:
    from hpcddp.core.data_job import DataTask

Command = Callable[..., Any]


@click.group()
def data() -> None:
    """Fetch, prepare, pack and verify data sets.

    \b
    hpcddp data prepare bigmnist --root $SCRATCH/bigmnist
    """


def _folder(flag: str, words: str) -> Callable[[Command], Command]:
    return click.option(flag, required=True, type=click.Path(path_type=Path, file_okay=False), help=words)


_written = _folder("--root", "Folder to write to.")
_read = _folder("--root", "Folder to read.")
_mirror = click.option("--mirror", metavar="URL", help="Address below which the files lie; by default the publisher's.")
_processes = click.option(
    "--processes", type=click.IntRange(min=1), help="How many work at once; by default as many as there are processors, up to 8."
)

_OF_JOB = (
    yes_option,
    click.option("--wait", is_flag=True, help="Stay until the job is over."),
    click.option("--dry-run", is_flag=True, help="Show the job; submit nothing."),
    after_option,
    click.option(
        "--runs",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="HPCDDP_RUNS",
        help="Run root, whose folder data gets the job's records; by default that of your settings, or jobs.",
    ),
    job_option,
    click.option(
        "--node-type", shell_complete=completion.node_type_names, help="Of the node; by default the profile's default one."
    ),
    click.option(
        "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a value of the job: slurm.walltime_min=90."
    ),
    click.option(
        "--cluster",
        metavar="NAME|FILE",
        shell_complete=completion.cluster_names,
        help="Do it as one job there, of a node's cores; a profile by name or YAML file. Without it, here and now.",
    ),
)
"""Options of the job, last to first, as --help shows them."""

OF_JOB = ("cluster", "settings", "node_type", "job_options", "runs", "after", "dry_run", "wait", "yes")
"""Their names, which are none of the task."""


def _does(action: str, data: str, counts: str = "") -> Callable[[Command], Command]:
    """The command does the task of these words: here, or with --cluster by a job. `counts`: what its progress is in."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def choose(**options: Any) -> None:
            of_job = {name: options.pop(name) for name in OF_JOB}
            if of_job["cluster"] is not None:
                click.get_current_context().exit(_submit(_task(action, data, options), of_job))
            _refuse_without_cluster(of_job)
            _do_here(action, data, {name: _filled_in(value) for name, value in options.items()}, counts)

        for option in _OF_JOB:
            choose = option(choose)
        return choose

    return decorate


def _refuse_without_cluster(of_job: Mapping[str, Any]) -> None:
    given = next((name for name, value in of_job.items() if value and name != "runs"), None)
    if given is not None:
        flag = {"settings": "--set", "job_options": "--job-option"}.get(given, f"--{given.replace('_', '-')}")
        raise click.UsageError(f"{flag} is of a job, and without --cluster the data are made here: give --cluster NAME")


def _filled_in(value: Any) -> Any:
    """A folder with its variables, as a job would have them: in single quotes the shell leaves them."""
    if not isinstance(value, Path):
        return value
    filled = os.path.expandvars(value)
    if "$" in filled:
        raise click.UsageError(f"{value}: {filled[filled.index('$') :].split('/')[0]} is not set; give the folder in full")
    return Path(filled)


def _do_here(action: str, data: str, options: Mapping[str, Any], counts: str = "") -> None:
    from importlib.util import find_spec

    from hpcddp.core.errors import UsageError

    if find_spec("torch") is None:
        step = "use the compute environment's, or `pip install torch`"
        raise UsageError(f"preparing data needs torch, which this Python lacks: {step}")
    from hpcddp.data.writing.folder import ProgressLine
    from hpcddp.data.writing.pool import default_processes
    from hpcddp.data.writing.tasks import Surroundings, do_task

    progress = ProgressLine(counts, sys.stderr) if counts else lambda done, total: None
    here = Surroundings(
        progress=progress, processes=default_processes(), made_of=_remark, remark=_remark, report_damage=click.echo
    )
    click.echo(do_task(action, data, options, here))


def _remark(text: str) -> None:
    click.echo(text, err=True)


def _task(action: str, data: str, options: Mapping[str, Any]) -> DataTask:
    """With the options that were given; the job has the others by default, too."""
    from hpcddp.core.data_job import DataTask

    context = click.get_current_context()
    given = {name: value for name, value in options.items() if context.get_parameter_source(name) is not ParameterSource.DEFAULT}
    folders = tuple(name for name, value in given.items() if isinstance(value, Path))
    plain = {name: str(value) if name in folders else value for name, value in given.items()}
    return DataTask(action=action, data=data, options=plain, folders=folders)


def _submit(task: DataTask, of_job: Mapping[str, Any]) -> int:
    from hpcddp.commands.submit import make_console
    from hpcddp.submit.data_job import data_layout, plan_data_job, submit_data_job
    from hpcddp.submit.options import PointOptions, SubmitOptions

    points = PointOptions(cluster=of_job["cluster"], settings=of_job["settings"], job_options=of_job["job_options"])
    options = SubmitOptions(**{name: of_job[name] for name in ("runs", "after", "dry_run", "wait", "yes")})
    job = plan_data_job(task, remark_on(data_layout(task, of_job["node_type"], points)), read_settings(), options)
    return submit_data_job(job, options, make_console())


@data.group("fetch")
def _fetch() -> None:
    """Download a data set's official files; each is checked before it has its name. Needs no torch.

    \b
    hpcddp data fetch cifar10 --root $SCRATCH/cifar10
    """


@_fetch.command("cifar10")
@_written
@_mirror
def _fetch_cifar10(root: Path, mirror: str | None) -> None:
    """CIFAR-10 in its binary version, 170 MB.

    From https://www.cs.toronto.edu/~kriz/cifar.html, which has its checksum.

    \b
    hpcddp data fetch cifar10 --root $SCRATCH/cifar10
    """
    _fetch_files(CIFAR10, root, mirror)


@_fetch.command("mnist")
@_written
@_mirror
def _fetch_mnist(root: Path, mirror: str | None) -> None:
    """MNIST in its four files, 12 MB.

    bigMNIST is made of them, too, where they lie in its folder.

    \b
    hpcddp data fetch mnist --root $SCRATCH/mnist
    """
    _fetch_files(MNIST, root, mirror)


def _fetch_files(official: OfficialSet, root: Path, mirror: str | None) -> None:
    from hpcddp.core.text import size
    from hpcddp.data.writing.fetch import fetch_official, read_instead
    from hpcddp.data.writing.folder import ProgressLine

    fetched = fetch_official(official, root, mirror=mirror, progress=ProgressLine("bytes", sys.stderr), remark=_remark)
    for file in official.files:
        click.echo(f"{file.name}, {size(file.size_bytes)}: {'fetched' if file in fetched else 'was there'}")
    click.echo(f"in {root}, with the sizes and checksums of their publisher")
    for path in read_instead(official, root):
        _remark(f"{path} is read in place of what was fetched, and is not the official file: remove it")


@data.group("pack")
def _pack() -> None:
    """Put a data set's files into few large ones; run again, it goes on where it stopped.

    \b
    hpcddp data pack imagenet --root $SCRATCH/imagenet --out $SCRATCH/imagenet-tar
    """


@_pack.command("imagenet")
@_folder("--root", "Folder with train/ and val/.")
@_folder("--out", "Folder for the tar files.")
@_processes
@_does("pack", "imagenet", "pictures")
def _pack_imagenet() -> None:
    """ImageNet's folders as tar files in WebDataset's layout, with an index beside each.

    Sweeps read them where `data.root` is the folder of the tar files: the same samples in the same order. Needs torch.

    \b
    hpcddp data pack imagenet --root $SCRATCH/imagenet --out $SCRATCH/imagenet-tar
    """


@data.group("verify")
def _verify() -> None:
    """Read all of a data set, and name what is damaged.

    \b
    hpcddp data verify bigmnist --root $SCRATCH/bigmnist
    """


@_verify.command("bigmnist")
@_read
@_processes
@_does("verify", "bigmnist", "samples")
def _verify_bigmnist() -> None:
    """Every shard against the checksums of the manifest.

    \b
    hpcddp data verify bigmnist --root $SCRATCH/bigmnist
    """


@_verify.command("imagenet")
@_read
@_processes
@_does("verify", "imagenet", "pictures")
def _verify_imagenet() -> None:
    """Every picture decoded, of folders or of tar files, and every tar file against its checksum.

    \b
    hpcddp data verify imagenet --root $SCRATCH/imagenet-tar
    """


@_verify.command("mnist")
@_read
def _verify_mnist(root: Path) -> None:
    """MNIST's four files against their official MD5.

    \b
    hpcddp data verify mnist --root $SCRATCH/mnist
    """
    _do_here("verify", "mnist", {"root": root})


@_verify.command("cifar10")
@_read
def _verify_cifar10(root: Path) -> None:
    """CIFAR-10's archive against its official MD5.

    \b
    hpcddp data verify cifar10 --root $SCRATCH/cifar10
    """
    _do_here("verify", "cifar10", {"root": root})


@data.group("prepare")
def _prepare() -> None:
    """Write a data set to disk; run again, it goes on where it stopped.

    \b
    hpcddp data prepare bigmnist --root $SCRATCH/bigmnist --copies 20
    """


@_prepare.command("digits")
@_written
@_does("prepare", "digits")
def _prepare_digits() -> None:
    """Handwritten digits in CIFAR-10's shape, for its models where CIFAR-10 is not at hand.

    They are scikit-learn's 1,797, of which one in six is for evaluation. Needs torch and scikit-learn.

    \b
    hpcddp data prepare digits --root demo/digits
    """


def _all_variants() -> str:
    from hpcddp.core.point import VARIANTS

    return ",".join(VARIANTS)


@_prepare.command("bigmnist")
@_written
@click.option("--copies", default=200, show_default=True, type=click.IntRange(min=1), help="Copies of the six variants.")
@click.option("--variants", default=_all_variants, show_default="all six", help="Which variants, separated by commas.")
@click.option(
    "--digits", default="auto", show_default=True, type=click.Choice(["auto", "mnist", "sklearn"]), help="Where digits come from."
)
@click.option("--mnist-root", type=click.Path(path_type=Path), help="Folder of MNIST's four official files; by default ROOT.")
@click.option("--seed", default=1, show_default=True, type=click.IntRange(min=0), help="Of the random augmentations.")
@_processes
@_does("prepare", "bigmnist", "samples")
def _prepare_bigmnist() -> None:
    """bigMNIST: six variants of MNIST's 60,000 digits, copied to 72,000,000 samples (about 56 GB of uint8).

    Needs torch. Digits are MNIST's official files where they are at hand, else scikit-learn's 1,797 upscaled.

    \b
    hpcddp data prepare bigmnist --root $SCRATCH/bigmnist
    hpcddp data prepare bigmnist --root demo/data --copies 4 --digits sklearn
    hpcddp data prepare bigmnist --root '$SCRATCH/bigmnist' --cluster rcc --set account=abc01
    """
