"""Reads all of a data set, and compares it with its manifest or with its publisher's checksums."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hpcddp.core.catalog import MNIST
from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.official_files import OFFICIAL, digest_of
from hpcddp.core.text import count, escape_controls, one_line, thousands
from hpcddp.data.bigmnist.shards import MANIFEST, UNFINISHED, Manifest, Shard, read_manifest
from hpcddp.data.pictures.decoders import Decoder, make_decoder
from hpcddp.data.pictures.image_folder import FOLDERS, ImageFolder
from hpcddp.data.pictures.imagenet import Pictures, picture_damage
from hpcddp.data.pictures.tar_shards import AGAIN, TAR_MANIFEST, ShardFacts, TarShards, read_index, read_pack_manifest
from hpcddp.data.small_sets import FILES_OF
from hpcddp.data.source import Split
from hpcddp.data.writing.folder import OnProgress, counted
from hpcddp.data.writing.pack import SPLITS, check_classes
from hpcddp.data.writing.pool import Advance, run_tasks

Damage = tuple[str, str]
"""Name of a file or a picture, and what is wrong with it."""

NAMED = 3
"""In the sentence; each stands in a line of its own before it."""


@dataclass(frozen=True, kw_only=True)
class Verified:
    """Everything that was read."""

    root: Path
    what: str
    """`242 files with 72,000,000 samples`"""
    damaged: tuple[Damage, ...]
    remedy: str
    """What to do about what is damaged."""
    remark: str = ""
    """What could not be checked."""

    def lines(self) -> Iterator[str]:
        return (f"{_name(name)}: {reason}" for name, reason in self.damaged)

    def sentence(self) -> str:
        """What was read and found in order; HpcddpError where something is damaged."""
        if self.damaged:
            first = ", ".join(_name(name) for name, _ in self.damaged[:NAMED])
            more = f" and {thousands(len(self.damaged) - NAMED)} more" if len(self.damaged) > NAMED else ""
            raise HpcddpError(
                f"{self.root}: {thousands(len(self.damaged))} damaged among {self.what}: {first}{more}; {self.remedy}"
            )
        return f"{self.root}: {self.what} read, none is damaged{self.remark and f'; {self.remark}'}"


@contextlib.contextmanager
def readable() -> Iterator[None]:
    """UsageError names what may not be read."""
    try:
        yield
    except PermissionError as error:
        raise UsageError(f"cannot read {error.filename}: {error.strerror}") from error


def _name(name: str) -> str:
    """As one line, whatever somebody has put into it."""
    return escape_controls(one_line(name))


@readable()
def verify_bigmnist(root: Path, *, progress: OnProgress, processes: int = 1) -> Verified:
    """Every byte against the checksums; UsageError where there is no finished bigMNIST."""
    if not (root / MANIFEST).is_file():
        held = "an unfinished bigMNIST" if (root / UNFINISHED).is_file() else f"no {MANIFEST}"
        raise UsageError(f"{root} holds {held}. Write the missing files with `hpcddp data prepare bigmnist --root {root}`.")
    manifest = read_manifest(root / MANIFEST)
    shards = [manifest.eval_shard, *manifest.train_shards]
    advance = counted(0, sum(shard.samples for shard in shards), progress)
    names = {path.name for shard in shards for path in shard.sizes(root)}
    without_sums = len(names - set(manifest.sha256))
    found = run_tasks(partial(_checked_shard, root=root, manifest=manifest), shards, processes, advance)
    return Verified(
        root=root,
        what=f"{count(len(names), 'file')} with {thousands(manifest.samples)} samples for training "
        f"and {thousands(manifest.eval_samples)} more",
        damaged=tuple(sorted(damage for damages in found for damage in damages)),
        remedy="delete these files, then prepare with the same options to write them again",
        remark=_of_earlier_version(without_sums, len(names)),
    )


def _of_earlier_version(without_sums: int, in_all: int) -> str:
    which = "it" if without_sums == in_all else count(without_sums, "file")
    return f"an earlier version prepared {which} without checksums: lengths and labels were compared" if without_sums else ""


def _checked_shard(shard: Shard, advance: Advance, *, root: Path, manifest: Manifest) -> list[Damage]:
    found = []
    for path, size_bytes in shard.sizes(root).items():
        try:
            reason = _reason(path, size_bytes, manifest.sha256.get(path.name), labels=path == shard.labels(root))
        except OSError as error:
            reason = error.strerror or str(error)
        if reason:
            found.append((path.name, reason))
    advance(shard.samples)
    return found


def _reason(path: Path, size_bytes: int, sha256: str | None, *, labels: bool) -> str | None:
    """What is wrong with a file; None where nothing is."""
    held_bytes = path.stat().st_size
    if held_bytes != size_bytes:
        return f"it has {thousands(held_bytes)} bytes, not {thousands(size_bytes)}"
    held = digest_of(path, "sha256")
    if sha256 not in (None, held):
        return f"its SHA-256 is {held}, not {sha256}"
    if labels and (largest := max(path.read_bytes())) >= MNIST.classes:
        return f"it holds the label {largest}; digits have 0 to {MNIST.classes - 1}"
    return None


PICTURES_AT_ONCE = 1000
"""Of a folder: seconds of work for a process."""


@dataclass(frozen=True)
class Part:
    """Pictures that one process reads, and the tar file that they fill, if they lie in one."""

    split: Split
    pictures: range
    tar: ShardFacts | None = None


@readable()
def verify_imagenet(root: Path, *, progress: OnProgress, processes: int = 1) -> Verified:
    """Every picture decoded in full, and every tar file against its checksum; HpcddpError where there is no ImageNet."""
    if (root / TAR_MANIFEST).is_file():
        plan, remedy = _tar_plan(root), "delete damaged tar files, then pack again with the same options"
    else:
        check_classes(root)
        plan, remedy = [], "fetch them again; training replaces and counts each"
    pictures = {split: _pictures(root, split) for split in SPLITS}
    plan = plan or _folder_plan(pictures)
    total = sum(len(part.pictures) for part in plan)
    work = partial(_checked_part, root=root, pictures=pictures, decoder=make_decoder("auto"))
    found = run_tasks(work, plan, processes, counted(0, total, progress))
    damaged = tuple(sorted(damage for damages in found for damage in damages))
    tars = sum(part.tar is not None for part in plan)
    return Verified(
        root=root, what=f"{thousands(total)} images{f' in {tars} tar files' if tars else ''}", damaged=damaged, remedy=remedy
    )


def _tar_plan(root: Path) -> list[Part]:
    """UsageError where a split has no tar file, as when it is opened for training."""
    manifest, plan = read_pack_manifest(root), list[Part]()
    for split, shards in zip(SPLITS, (manifest.train, manifest.val), strict=True):
        if not shards:
            raise UsageError(f"{root / TAR_MANIFEST} names no tar file of {FOLDERS[split]}: {AGAIN}")
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
    if not (root / TAR_MANIFEST).is_file():
        return ImageFolder(root, split)
    try:
        return TarShards(root, split)
    except HpcddpError:
        return None


def _checked_part(
    part: Part, advance: Advance, *, root: Path, pictures: Mapping[Split, Pictures | None], decoder: Decoder
) -> list[Damage]:
    found = [] if part.tar is None else _tar_damage(root, part.tar)
    of_split = pictures[part.split]
    for index in part.pictures:
        if of_split is not None and (reason := picture_damage(of_split, index, decoder)):
            found.append((f"{FOLDERS[part.split]}/{of_split.name(index)}", reason))
        advance(1)
    return found


def _tar_damage(root: Path, tar: ShardFacts) -> list[Damage]:
    try:
        read_index(root / tar.name, tar)
        held = digest_of(root / tar.name, "sha256")
    except (OSError, HpcddpError) as error:
        return [(tar.name, str(error))]
    return [] if held == tar.sha256 else [(tar.name, f"its SHA-256 is {held}, not {tar.sha256}")]


@readable()
def verify_official(name: str, root: Path) -> Verified:
    """What training and evaluation read of data set `name`; HpcddpError where a file is missing."""
    found = dict.fromkeys((*FILES_OF[name](root, "train"), *FILES_OF[name](root, "eval")))
    official, damaged = OFFICIAL[name].by_name(), list[Damage]()
    for path in found:
        expected = official[path.name]
        held = digest_of(path, expected.algorithm)
        if held != expected.digest:
            damaged.append((path.name, f"its {expected.algorithm.upper()} is {held}, the publisher's {expected.digest}"))
    return Verified(
        root=root,
        what=f"{count(len(found), 'file')} of {name}",
        damaged=tuple(damaged),
        remedy=f"remove them, and `hpcddp data fetch {name} --root {root}` fetches them again",
    )
