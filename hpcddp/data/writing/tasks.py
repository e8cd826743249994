"""What `hpcddp data` does, by the names of its commands: a job calls the same functions as the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hpcddp.core.data_task import DataTask
from hpcddp.core.errors import UsageError

Progress = Callable[[int, "int | None"], None]
"""Called with how much is done, and of how much where that is known."""

Options = Mapping[str, Any]


def run_task(task: DataTask, progress: Progress) -> str:
    """Does it, and says what was done; HpcddpError says why not."""
    function = TASKS.get((task.action, task.data))
    if function is None:
        raise UsageError(f"no `hpcddp data {task.action} {task.data}` in this version")
    return function(task.options, progress)


def _prepare_bigmnist(options: Options, progress: Progress) -> str:
    from hpcddp.data.digits import find_digits
    from hpcddp.data.writing.prepare import prepare_bigmnist

    root = Path(options["root"])
    digits = find_digits(options["digits"], Path(options["mnist_root"] or root))
    manifest = prepare_bigmnist(
        root,
        digits=digits,
        copies=options["copies"],
        variants=tuple(options["variants"].split(",")),
        seed=options["seed"],
        progress=progress,
    )
    return f"{manifest.samples:,} samples in {root}; {digits.message}"


def _prepare_digits(options: Options, progress: Progress) -> str:
    from hpcddp.data.digits import sklearn_digits
    from hpcddp.data.rgb_digits import prepare_digits

    root = Path(options["root"])
    found = prepare_digits(root, sklearn_digits())
    progress(found, found)
    return f"{found:,} digits of scikit-learn's in {root}, 3 x 32 x 32; not CIFAR-10"


def _pack_imagenet(options: Options, progress: Progress) -> str:
    from hpcddp.data.writing.pack import pack_imagenet

    done, out = 0, Path(options["out"])

    def count(pictures: int) -> None:
        nonlocal done
        done += pictures
        progress(done, None)

    packed = pack_imagenet(Path(options["root"]), out, progress=count)
    unreadable = f", of which {packed.unreadable:,} cannot be read and are empty" if packed.unreadable else ""
    return f"{packed.pictures:,} pictures in {packed.shards} tar files in {out}{unreadable}"


TASKS: Mapping[tuple[str, str], Callable[[Options, Progress], str]] = {
    ("prepare", "bigmnist"): _prepare_bigmnist,
    ("prepare", "digits"): _prepare_digits,
    ("pack", "imagenet"): _pack_imagenet,
}
"""By the words of the command."""
