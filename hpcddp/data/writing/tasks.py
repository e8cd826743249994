"""What `hpcddp data` does, by the names of its commands: a job calls the same functions as the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from hpcddp.core.data_task import DataTask
from hpcddp.core.errors import UsageError
from hpcddp.core.point import VARIANTS
from hpcddp.data.writing.verified import Verified

Progress = Callable[[int, "int | None"], None]
"""Called with how much is done, and of how much where that is known."""


def run_task(task: DataTask, progress: Progress) -> str:
    """Does it, and says what was done; HpcddpError says why not."""
    function = TASKS.get((task.action, task.data))
    if function is None:
        raise UsageError(f"no `hpcddp data {task.action} {task.data}` in this version")
    return function(progress, **task.options)


def _remark(text: str) -> None:
    """Into the job's log, at once."""
    print(text, flush=True)


def _prepare_bigmnist(  # noqa: PLR0913 - the options of the command
    progress: Progress,
    *,
    root: str,
    copies: int = 200,
    variants: str = ",".join(VARIANTS),
    digits: Literal["auto", "mnist", "sklearn"] = "auto",
    mnist_root: str | None = None,
    seed: int = 1,
    processes: int | None = None,
) -> str:
    from hpcddp.data.digits import find_digits
    from hpcddp.data.writing.pool import processors
    from hpcddp.data.writing.prepare import prepare_bigmnist

    found = find_digits(digits, Path(mnist_root or root))
    manifest = prepare_bigmnist(
        Path(root),
        digits=found,
        copies=copies,
        variants=tuple(variants.split(",")),
        seed=seed,
        progress=progress,
        remark=_remark,
        processes=processes or processors(),
    )
    return f"{manifest.samples:,} samples in {root}; {found.message}"


def _prepare_digits(progress: Progress, *, root: str) -> str:
    from hpcddp.data.digits import sklearn_digits
    from hpcddp.data.writing.digits import prepare_digits

    found = prepare_digits(Path(root), sklearn_digits())
    progress(found, found)
    return f"{found:,} digits of scikit-learn's in {root}, 3 x 32 x 32; not CIFAR-10"


def _pack_imagenet(progress: Progress, *, root: str, out: str, processes: int | None = None) -> str:
    from hpcddp.data.writing.pack import pack_imagenet
    from hpcddp.data.writing.pool import processors

    packed = pack_imagenet(Path(root), Path(out), progress=progress, remark=_remark, processes=processes or processors())
    unreadable = f", of which {packed.unreadable:,} cannot be read and are empty" if packed.unreadable else ""
    return f"{packed.pictures:,} pictures in {packed.shards} tar files in {out}{unreadable}"


def _verify_bigmnist(progress: Progress, *, root: str, processes: int | None = None) -> str:
    from hpcddp.data.writing.pool import processors
    from hpcddp.data.writing.verify_bigmnist import verify_bigmnist

    return _logged(verify_bigmnist(Path(root), progress=progress, processes=processes or processors()))


def _verify_imagenet(progress: Progress, *, root: str, processes: int | None = None) -> str:
    from hpcddp.data.writing.pool import processors
    from hpcddp.data.writing.verify_imagenet import verify_imagenet

    return _logged(verify_imagenet(Path(root), progress=progress, processes=processes or processors()))


def _logged(verified: Verified) -> str:
    for line in verified.lines():
        _remark(line)
    return verified.sentence()


TASKS: Mapping[tuple[str, str], Callable[..., str]] = {
    ("prepare", "bigmnist"): _prepare_bigmnist,
    ("prepare", "digits"): _prepare_digits,
    ("pack", "imagenet"): _pack_imagenet,
    ("verify", "bigmnist"): _verify_bigmnist,
    ("verify", "imagenet"): _verify_imagenet,
}
"""By the words of the command; options are by its names, and without one it has the command's default."""
