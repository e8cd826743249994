"""Whether a folder holds a data set, by the names of its files and its manifest: what a login node can say without torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddp.core.data_job import DataTask
from hpcddp.core.point import Data

FILES: Mapping[str, tuple[str, ...]] = {
    "bigmnist": ("bigmnist.json",),
    "digits": ("digits-train.bin",),
    "imagenet": ("imagenet.json", "train"),
    "mnist": tuple(f"{folder}train-images-idx3-ubyte{packed}" for folder in ("", "MNIST/raw/") for packed in ("", ".gz")),
    "cifar10": ("cifar-10-binary.tar.gz", "data_batch_1.bin", "cifar-10-batches-bin/data_batch_1.bin"),
}
"""By data set: one of these is there where the set is."""

BASE = "plain"
"""The variant of bigMNIST that the form `augmented` starts from."""

REMEDIES: Mapping[str, str] = {
    "imagenet": "put ILSVRC2012's train/CLASS/*.JPEG and val/CLASS/*.JPEG there, or tar files from `hpcddp data pack imagenet`",
    "mnist": "`hpcddp data fetch mnist --root ROOT`",
    "cifar10": "`hpcddp data fetch cifar10 --root ROOT`",
}
"""What to do where no job can prepare the set; ROOT stands for its folder."""


@dataclass(frozen=True, kw_only=True)
class Unprepared:
    """Why a set cannot be read from its folder."""

    text: str
    """With what to do."""
    is_missing: bool
    """Whether there is nothing of it, or not all; False: something else is there."""


def prepare_task(data: Data, root: str) -> DataTask | None:
    """What makes the data set in that folder, as a user would say it; None where hpcddp does not make it."""
    if data.name not in ("bigmnist", "digits"):
        return None
    options: dict[str, object] = {"root": root}
    if data.name == "bigmnist":
        (copies, variants), usual = prepared_for(data), Data(name=data.name)
        options |= {"copies": copies} if copies != usual.copies else {}
        options |= {"variants": ",".join(variants)} if variants != usual.variants else {}
    return DataTask(action="prepare", data=data.name, options=options, folders=("root",))


def prepared_for(data: Data) -> tuple[int, tuple[str, ...]]:
    """Copies and variants of bigMNIST that the form needs on disk, at least."""
    if data.form == "shards":
        return data.copies, data.variants
    return 1, data.variants if data.form == "virtual" else (BASE,)


def unprepared(data: Data, root: Path) -> Unprepared | None:
    """Why the set cannot be read from that folder; None where nothing of that can be seen by names."""
    if data.name not in FILES:
        return None
    if not any((root / name).exists() for name in FILES[data.name]):
        return Unprepared(text=f"no data `{data.name}` in {root}: {_remedy(data, root)}", is_missing=True)
    words = _differing(data, root) if data.name == "bigmnist" else None
    return None if words is None else Unprepared(text=f"{words}. Change the point, or prepare another folder.", is_missing=False)


def _remedy(data: Data, root: Path) -> str:
    task = prepare_task(data, str(root))
    if task is None:
        return REMEDIES[data.name].replace("ROOT", str(root))
    return f"`{task.command}`, or `hpcddp submit --prepare` to run that as a job first"


def _differing(data: Data, root: Path) -> str | None:
    """Of bigMNIST: a manifest of other copies or variants than the form needs."""
    try:
        held: Any = json.loads((root / FILES["bigmnist"][0]).read_text(encoding="utf-8"))
        copies, variants = held["copies"], tuple(held["variants"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # the run's own check says what is wrong with it
    return difference(data, root, copies, variants)


def difference(data: Data, root: Path, copies: int, variants: tuple[str, ...]) -> str | None:
    """In which the bigMNIST in the folder, prepared with these copies and variants, is another one than the form needs."""
    there, held = f"but the bigMNIST in {root} was prepared with", ", ".join(variants)
    if data.form == "augmented":
        needs = f"data.form is augmented, which starts from the variant {BASE}"
        return None if BASE in variants else f"{needs}, {there} variants = {held}"
    if data.form == "shards" and data.copies != copies:
        return f"data.copies is {data.copies}, {there} copies = {copies}"
    return None if data.variants == variants else f"data.variants is {', '.join(data.variants)}, {there} variants = {held}"
