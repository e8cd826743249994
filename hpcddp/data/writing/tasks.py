"""What `hpcddp data` does, by the names of its commands: a job calls the same functions as the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hpcddp.core.data_job import DataTask
from hpcddp.core.errors import UsageError
from hpcddp.core.point import VARIANTS
from hpcddp.core.text import thousands
from hpcddp.data.writing.folder import OnProgress

if TYPE_CHECKING:
    from hpcddp.data.writing.verify import Verified

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Where a task is done: what it may use, and who is told what."""

    progress: OnProgress
    processes: int
    """Unless the task's options say how many."""
    made_of: Say
    """Of what the data are made, before they are."""
    remark: Say
    """What it waits for."""
    report_damage: Say
    """Each thing that is damaged."""


def run_task(task: DataTask, progress: OnProgress) -> str:
    """Does it in a job, with all that the job was given, and says what was done; HpcddpError says why not."""
    from hpcddp.data.writing.pool import processors

    made_of: list[str] = []
    log = partial(print, flush=True)  # into the job's log, at once
    job = Surroundings(progress=progress, processes=processors(), made_of=made_of.append, remark=log, report_damage=log)
    return "; ".join([do_task(task.action, task.data, task.options, job), *made_of])


def do_task(action: str, data: str, options: Mapping[str, Any], here: Surroundings) -> str:
    """What was done, as a sentence; HpcddpError says why not."""
    function = TASKS.get((action, data))
    if function is None:
        raise UsageError(f"no `hpcddp data {action} {data}` in this version")
    return function(here, **options)


def _prepare_bigmnist(  # noqa: PLR0913 - the options of the command
    here: Surroundings,
    *,
    root: str | Path,
    copies: int = 200,
    variants: str = ",".join(VARIANTS),
    digits: Literal["auto", "mnist", "sklearn"] = "auto",
    mnist_root: str | Path | None = None,
    seed: int = 1,
    processes: int | None = None,
) -> str:
    from hpcddp.data.small_sets import find_digits
    from hpcddp.data.writing.prepare import prepare_bigmnist

    found = find_digits(digits, Path(mnist_root or root))
    here.made_of(found.message)
    manifest = prepare_bigmnist(
        Path(root),
        digits=found,
        copies=copies,
        variants=tuple(variants.split(",")),
        seed=seed,
        progress=here.progress,
        remark=here.remark,
        processes=processes or here.processes,
    )
    return f"{thousands(manifest.samples)} samples in {root}"


def _prepare_digits(here: Surroundings, *, root: str | Path) -> str:
    from hpcddp.data.small_sets import sklearn_digits
    from hpcddp.data.writing.prepare import prepare_digits

    found = prepare_digits(Path(root), sklearn_digits())
    here.progress(found, found)
    return f"{thousands(found)} digits of scikit-learn's in {root}, 3 x 32 x 32; not CIFAR-10"


def _pack_imagenet(here: Surroundings, *, root: str | Path, out: str | Path, processes: int | None = None) -> str:
    from hpcddp.data.writing.pack import pack_imagenet

    used = processes or here.processes
    packed = pack_imagenet(Path(root), Path(out), progress=here.progress, remark=here.remark, processes=used)
    unreadable = f", of which {thousands(packed.unreadable)} cannot be read and are empty" if packed.unreadable else ""
    return f"{thousands(packed.pictures)} images in {packed.shards} tar files in {out}{unreadable}"


def _verify(name: Literal["bigmnist", "imagenet"], here: Surroundings, *, root: str | Path, processes: int | None = None) -> str:
    from hpcddp.data.writing.verify import verify_bigmnist, verify_imagenet

    verify = {"bigmnist": verify_bigmnist, "imagenet": verify_imagenet}[name]
    return _reported(verify(Path(root), progress=here.progress, processes=processes or here.processes), here)


def _verify_official(name: str, here: Surroundings, *, root: str | Path) -> str:
    from hpcddp.data.writing.verify import verify_official

    return _reported(verify_official(name, Path(root)), here)


def _reported(verified: Verified, here: Surroundings) -> str:
    for line in verified.lines():
        here.report_damage(line)
    return verified.sentence()


TASKS: Mapping[tuple[str, str], Callable[..., str]] = {
    ("prepare", "bigmnist"): _prepare_bigmnist,
    ("prepare", "digits"): _prepare_digits,
    ("pack", "imagenet"): _pack_imagenet,
    ("verify", "bigmnist"): partial(_verify, "bigmnist"),
    ("verify", "imagenet"): partial(_verify, "imagenet"),
    ("verify", "mnist"): partial(_verify_official, "mnist"),
    ("verify", "cifar10"): partial(_verify_official, "cifar10"),
}
"""By the words of the command; options are by its names, and without one it has the command's default."""
