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
_mirror = click.option("--mirror", metavar="URL", help="Fetch the files from below URL. Default: the publisher's.")
_processes = click.option("--processes", type=click.IntRange(min=1), metavar="N", help="Default: one per CPU, at most 8.")

_OF_JOB = (
    yes_option,
    click.option("--wait", is_flag=True, help="Wait until the job has finished."),
    click.option("--dry-run", is_flag=True, help="Show the job, without submitting."),
    after_option,
    click.option(
        "--runs",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="HPCDDP_RUNS",
        help="Write the job's records to data/ in this folder. Default: run_root of your settings, or jobs.",
    ),
    job_option,
    click.option("--node-type", shell_complete=completion.node_type_names, help="Node type. Default: the profile's."),
    click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a value, such as slurm.walltime_min=90."),
    click.option(
        "--cluster",
        metavar="NAME|FILE",
        shell_complete=completion.cluster_names,
        help="Run as a job on one node of this cluster, by name or YAML file. Default: run here, without a job.",
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
        raise click.UsageError(f"{flag} applies to a job only. Add --cluster NAME to submit one.")


def _filled_in(value: Any) -> Any:
    """A folder with its variables, as a job would have them: in single quotes the shell leaves them."""
    if not isinstance(value, Path):
        return value
    filled = os.path.expandvars(value)
    if "$" in filled:
        raise click.UsageError(
            f"{value}: {filled[filled.index('$') :].split('/')[0]} is not set. Set it, or give the folder in full."
        )
    return Path(filled)


def _do_here(action: str, data: str, options: Mapping[str, Any], counts: str = "") -> None:
    from importlib.util import find_spec

    from hpcddp.core.errors import UsageError

    if find_spec("torch") is None:
        raise UsageError("Preparing data needs torch. Use the Python of the compute environment, or run `pip install torch`.")
    from hpcddp.data.writing.folder import ProgressLine
    from hpcddp.data.writing.pool import default_processes
    from hpcddp.data.writing.tasks import Surroundings, do_task

    progress = ProgressLine(counts, sys.stderr) if counts else lambda done, total: None
    here = Surroundings(progress=progress, processes=default_processes(), made_of=_note, remark=_note, report_damage=click.echo)
    click.echo(do_task(action, data, options, here))


def _note(text: str) -> None:
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
    """Download a data set's official files, and check each one. Needs no torch.

    \b
    hpcddp data fetch cifar10 --root $SCRATCH/cifar10
    """


@_fetch.command("cifar10")
@_written
@_mirror
def _fetch_cifar10(root: Path, mirror: str | None) -> None:
    """CIFAR-10 in its binary version, 170 MB.

    The archive and its checksum are from https://www.cs.toronto.edu/~kriz/cifar.html.

    \b
    hpcddp data fetch cifar10 --root $SCRATCH/cifar10
    """
    _fetch_files(CIFAR10, root, mirror)


@_fetch.command("mnist")
@_written
@_mirror
def _fetch_mnist(root: Path, mirror: str | None) -> None:
    """MNIST in its four files, 12 MB.

    `hpcddp data prepare bigmnist` uses them too, if they are in its folder.

    \b
    hpcddp data fetch mnist --root $SCRATCH/mnist
    """
    _fetch_files(MNIST, root, mirror)


def _fetch_files(official: OfficialSet, root: Path, mirror: str | None) -> None:
    from hpcddp.core.text import size
    from hpcddp.data.writing.fetch import fetch_official, read_instead
    from hpcddp.data.writing.folder import ProgressLine

    fetched = fetch_official(official, root, mirror=mirror, progress=ProgressLine("bytes", sys.stderr), remark=_note)
    for file in official.files:
        click.echo(f"{file.name}, {size(file.size_bytes)}: {'fetched' if file in fetched else 'was there'}")
    click.echo(f"in {root}, with the sizes and checksums of their publisher")
    for path in read_instead(official, root):
        _note(f"{path} is not the official file, but is read instead of the fetched one. Remove it.")


@data.group("pack")
def _pack() -> None:
    """Pack a data set's files into few large ones. Run the command again to resume.

    \b
    hpcddp data pack imagenet --root $SCRATCH/imagenet --out $SCRATCH/imagenet-tar
    """


@_pack.command("imagenet")
@_folder("--root", "Folder with train/ and val/.")
@_folder("--out", "Folder for the tar files.")
@_processes
@_does("pack", "imagenet", "images")
def _pack_imagenet() -> None:
    """Pack ImageNet's folders into tar files in WebDataset's layout, each with an index.

    Set `data.root` of a sweep to the folder of the tar files. It gives the same samples in the same order. Needs torch.

    \b
    hpcddp data pack imagenet --root $SCRATCH/imagenet --out $SCRATCH/imagenet-tar
    """


@data.group("verify")
def _verify() -> None:
    """Read all of a data set, and list damaged files.

    \b
    hpcddp data verify bigmnist --root $SCRATCH/bigmnist
    """


@_verify.command("bigmnist")
@_read
@_processes
@_does("verify", "bigmnist", "samples")
def _verify_bigmnist() -> None:
    """Check every shard against the checksums of the manifest.

    \b
    hpcddp data verify bigmnist --root $SCRATCH/bigmnist
    """


@_verify.command("imagenet")
@_read
@_processes
@_does("verify", "imagenet", "images")
def _verify_imagenet() -> None:
    """Decode every image of folders or tar files, and check every tar file's checksum.

    \b
    hpcddp data verify imagenet --root $SCRATCH/imagenet-tar
    """


@_verify.command("mnist")
@_read
def _verify_mnist(root: Path) -> None:
    """Check MNIST's four files against their official MD5.

    \b
    hpcddp data verify mnist --root $SCRATCH/mnist
    """
    _do_here("verify", "mnist", {"root": root})


@_verify.command("cifar10")
@_read
def _verify_cifar10(root: Path) -> None:
    """Check CIFAR-10's archive against its official MD5.

    \b
    hpcddp data verify cifar10 --root $SCRATCH/cifar10
    """
    _do_here("verify", "cifar10", {"root": root})


@data.group("prepare")
def _prepare() -> None:
    """Write a data set to disk. Run the command again to resume.

    \b
    hpcddp data prepare bigmnist --root $SCRATCH/bigmnist --copies 20
    """


@_prepare.command("digits")
@_written
@_does("prepare", "digits")
def _prepare_digits() -> None:
    """Write handwritten digits in CIFAR-10's shape, to replace CIFAR-10 where it is not available.

    The digits are scikit-learn's 1,797; one in six is for evaluation. Needs torch and scikit-learn.

    \b
    hpcddp data prepare digits --root demo/digits
    """


def _all_variants() -> str:
    from hpcddp.core.point import VARIANTS

    return ",".join(VARIANTS)


@_prepare.command("bigmnist")
@_written
@click.option("--copies", default=200, show_default=True, type=click.IntRange(min=1), metavar="N", help="Copies of each variant.")
@click.option("--variants", default=_all_variants, show_default="all six", help="Variants, separated by commas.")
@click.option(
    "--digits", default="auto", show_default=True, type=click.Choice(["auto", "mnist", "sklearn"]), help="Source of the digits."
)
@click.option("--mnist-root", type=click.Path(path_type=Path), help="Folder of MNIST's four official files. Default: ROOT.")
@click.option("--seed", default=1, show_default=True, type=click.IntRange(min=0), help="Seed of the random augmentations.")
@_processes
@_does("prepare", "bigmnist", "samples")
def _prepare_bigmnist() -> None:
    """Write bigMNIST: six variants of MNIST's 60,000 digits, copied to 72,000,000 samples (about 56 GB of uint8).

    Reads MNIST's official files if available, else scikit-learn's 1,797 digits, upscaled. Needs torch.

    \b
    hpcddp data prepare bigmnist --root $SCRATCH/bigmnist
    hpcddp data prepare bigmnist --root demo/data --copies 4 --digits sklearn
    hpcddp data prepare bigmnist --root '$SCRATCH/bigmnist' --cluster rcc --set account=abc01
    """
