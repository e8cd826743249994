"""Reads and decodes every picture of ImageNet, from its folders or from tar files, and compares these with their manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.data.pictures.cuts import middle
from hpcddp.data.pictures.decoders import Decoder, make_decoder
from hpcddp.data.pictures.image_folder import FOLDERS, DamagedPictureError, ImageFolder
from hpcddp.data.pictures.imagenet import Pictures
from hpcddp.data.pictures.tar_shards import AGAIN, MANIFEST, ShardFacts, TarShards, read_index, read_manifest
from hpcddp.data.source import Split
from hpcddp.data.writing.pack import SPLITS, check_classes
from hpcddp.data.writing.parts import sha256_of
from hpcddp.data.writing.pool import Advance, run_tasks
from hpcddp.data.writing.verified import Damage, Progress, Verified, counted, readable

PICTURES_AT_ONCE = 1000
"""Of a folder: seconds of work for a process."""


@dataclass(frozen=True)
class Part:
    """Pictures that one process reads, and the tar file that they fill, if they lie in one."""

    split: Split
    pictures: range
    tar: ShardFacts | None = None


@readable()
def verify_imagenet(root: Path, *, progress: Progress, processes: int = 1) -> Verified:
    """Every picture decoded in full, and every tar file against its checksum; HpcddpError where there is no ImageNet."""
    if (root / MANIFEST).is_file():
        plan, remedy = _tar_plan(root), "remove damaged tar files and pack again with the same options, which makes them anew"
    else:
        check_classes(root)
        plan, remedy = [], "fetch them again; in training each is replaced and counted"
    pictures = {split: _pictures(root, split) for split in SPLITS}
    plan = plan or _folder_plan(pictures)
    total = sum(len(part.pictures) for part in plan)
    work = partial(_checked, root=root, pictures=pictures, decoder=make_decoder("auto"))
    found = run_tasks(work, plan, processes, counted(0, total, progress))
    damaged = tuple(sorted(damage for damages in found for damage in damages))
    tars = sum(part.tar is not None for part in plan)
    return Verified(
        root=root, what=f"{total:,} pictures{f' in {tars} tar files' if tars else ''}", damaged=damaged, remedy=remedy
    )


def _tar_plan(root: Path) -> list[Part]:
    """UsageError where a split has no tar file, as when it is opened for training."""
    manifest, plan = read_manifest(root), list[Part]()
    for split, shards in zip(SPLITS, (manifest.train, manifest.val), strict=True):
        if not shards:
            raise UsageError(f"{root / MANIFEST} names no tar file of {FOLDERS[split]}: {AGAIN}")
        first = 0
        for shard in shards:
            plan.append(Part(split, range(first, first + shard.samples), shard))
            first += shard.samples
    return plan


def _folder_plan(pictures: Mapping[Split, Pictures | None]) -> list[Part]:
    counts = {split: 0 if found is None else len(found.labels) for split, found in pictures.items()}
    return [
        Part(split, range(start, min(start + PICTURES_AT_ONCE, samples)))
        for split, samples in counts.items()
        for start in range(0, samples, PICTURES_AT_ONCE)
    ]


def _pictures(root: Path, split: Split) -> Pictures | None:
    """None where a tar file is such that no picture of the split is read: the check of each tar names it."""
    if not (root / MANIFEST).is_file():
        return ImageFolder(root, split)
    try:
        return TarShards(root, split)
    except HpcddpError:
        return None


def _checked(
    part: Part, advance: Advance, *, root: Path, pictures: Mapping[Split, Pictures | None], decoder: Decoder
) -> list[Damage]:
    found = [] if part.tar is None else _tar_damage(root, part.tar)
    of_split = pictures[part.split]
    for index in part.pictures:
        if of_split is not None and (reason := _picture_damage(of_split, index, decoder)):
            found.append((f"{FOLDERS[part.split]}/{of_split.name(index)}", reason))
        advance(1)
    return found


def _tar_damage(root: Path, tar: ShardFacts) -> list[Damage]:
    path = root / tar.name
    try:
        read_index(path, tar)
        with path.open("rb") as file:
            held = sha256_of(file)
    except (OSError, HpcddpError) as error:
        return [(tar.name, str(error))]
    return [] if held == tar.sha256 else [(tar.name, f"its SHA-256 is {held}, not {tar.sha256}")]


def _picture_damage(pictures: Pictures, index: int, decoder: Decoder) -> str | None:
    try:
        decoder.pixels(pictures.content(index), middle)
    except DamagedPictureError as error:
        return str(error)
    return None
