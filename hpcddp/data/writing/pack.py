"""Packs ImageNet's folders into tar files with an index each; tar_shards.py says what lies there.

Killed and started again, it keeps the finished files and ends with the same bytes: a tar follows from the pictures alone.
"""

from __future__ import annotations

import contextlib
import io
import json
import tarfile
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hpcddp.core.errors import UsageError
from hpcddp.core.point import to_json
from hpcddp.core.schema import encode
from hpcddp.data.pictures.image_folder import FOLDERS, DamagedPictureError, ImageFolder, class_names
from hpcddp.data.pictures.tar_shards import BLOCK, TAR_MANIFEST, PackManifest, ShardFacts, index_file, member_name
from hpcddp.data.source import Split
from hpcddp.data.writing import folder as disk
from hpcddp.data.writing.folder import OnProgress, counted
from hpcddp.data.writing.pool import Advance, run_tasks

SAMPLES_PER_SHARD = 10_000
"""1.1 GB of ImageNet's: 134 tar files instead of 1.3 million of 110 KB, and a minute's work to lose when killed."""

INDEX_KEYS = {"sha256", "tar_bytes", "names", "offsets", "sizes", "labels"}

SPLITS: tuple[Split, ...] = ("train", "eval")


@dataclass(frozen=True, kw_only=True)
class Packed:
    """What was packed."""

    pictures: int
    unreadable: int
    """Files that are none or cannot be read: each has its place, empty, as in the folder."""
    shards: int


@dataclass(frozen=True)
class PlannedTar:
    """Which samples go into which file."""

    split: Split
    tar: Path
    samples: range


Folders = Mapping[Split, ImageFolder]


def pack_imagenet(  # noqa: PLR0913 - the contract with the command
    root: Path,
    out: Path,
    *,
    progress: OnProgress,
    remark: Callable[[str], None] = lambda _: None,
    processes: int = 1,
    samples_per_shard: int = SAMPLES_PER_SHARD,
) -> Packed:
    """Writes the tar files that `out` lacks. `progress` is called with how many pictures are packed, and how many there are;
    `remark` with a sentence where another process packs there.

    UsageError where the folders are not ImageNet's or `out` holds something else, HpcddpError where it cannot hold all.
    """
    classes = check_classes(root)
    folders: Folders = {split: ImageFolder(root, split) for split in SPLITS}
    plan = [planned for split in SPLITS for planned in _plan(out, split, len(folders[split].labels), samples_per_shard)]
    try:
        out.mkdir(parents=True, exist_ok=True)
        disk.check_space(out, _missing_bytes(folders, plan) - disk.bytes_of_parts(out), "packing", "choose another folder")
        with disk.root_lock(out, remark) as lock, disk.without_parts(out):
            with contextlib.closing(_written(folders, plan, processes, progress)) as tars:
                for _ in tars:
                    lock.check()
            facts = {split: tuple(_facts(planned) for planned in plan if planned.split == split) for split in SPLITS}
            manifest = PackManifest(classes=tuple(classes), train=facts["train"], val=facts["eval"])
            disk.write_complete(out / TAR_MANIFEST, f"{to_json(encode(manifest))}\n".encode())
    except OSError as error:
        raise disk.write_error(error, out, "tar files", lambda: _missing_bytes(folders, plan)) from error
    sizes = [size for planned in plan for size in _index(planned.tar)["sizes"]]
    return Packed(pictures=len(sizes), unreadable=sizes.count(0), shards=len(plan))


def check_classes(root: Path) -> list[str]:
    """The classes' names; UsageError where train and val differ in them."""
    classes = class_names(root, "train")
    evaluated = class_names(root, "val")
    if classes != evaluated:
        odd = min(set(classes) ^ set(evaluated))
        lacking = "val" if odd in classes else "train"
        raise UsageError(f"{root / lacking} lacks the class `{odd}`: train and val must have the same classes")
    return classes


def _plan(out: Path, split: Split, samples: int, per_shard: int) -> list[PlannedTar]:
    name, starts = FOLDERS[split], range(0, samples, per_shard)
    return [
        PlannedTar(split, out / f"{name}-{number:05d}.tar", range(start, min(start + per_shard, samples)))
        for number, start in enumerate(starts)
    ]


def _missing_bytes(folders: Folders, plan: Sequence[PlannedTar]) -> int:
    missing = [planned for planned in plan if not _done(planned.tar)]
    return sum(_size(folders[planned.split].path(index)) + 4 * BLOCK for planned in missing for index in planned.samples)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _done(tar: Path) -> bool:
    """The index is renamed into place behind its tar."""
    return index_file(tar).is_file() and tar.is_file() and tar.stat().st_size == _index(tar).get("tar_bytes")


def _index(tar: Path) -> dict[str, Any]:
    """Empty where the file is no index: its tar is packed again."""
    try:
        found = json.loads(index_file(tar).read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and found.keys() >= INDEX_KEYS else {}


def _written(folders: Folders, plan: Sequence[PlannedTar], processes: int, progress: OnProgress) -> Generator[None, None, None]:
    """Writes what is missing, file by file; UsageError where a file that is there holds other pictures."""
    for planned in plan:
        names = (folders[planned.split].name(index) for index in planned.samples)
        if _done(planned.tar) and _index(planned.tar)["names"] != [*names]:
            raise UsageError(f"{planned.tar} has other images than the folder. Choose another folder for the tar files.")
    missing = [planned for planned in plan if not _done(planned.tar)]
    total = sum(len(planned.samples) for planned in plan)
    done = total - sum(len(planned.samples) for planned in missing)
    yield from run_tasks(partial(_write_tar, folders=folders), missing, processes, counted(done, total, progress))


def _facts(planned: PlannedTar) -> ShardFacts:
    tar, index = planned.tar, _index(planned.tar)
    return ShardFacts(name=tar.name, samples=len(planned.samples), size_bytes=index["tar_bytes"], sha256=str(index["sha256"]))


def _write_tar(planned: PlannedTar, advance: Advance, *, folders: Folders) -> None:
    folder, offsets, sizes = folders[planned.split], [], []
    with disk.written_aside(planned.tar) as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for number in planned.samples:
                content = _content(folder, number)
                _add(archive, member_name(number), content)
                offsets.append(archive.offset - -(-len(content) // BLOCK) * BLOCK)
                sizes.append(len(content))
                _add(archive, f"{number:09d}.cls", str(int(folder.labels[number])).encode())
                advance(1)
        file.seek(0)
        facts = {"schema": 1, "sha256": disk.sha256_of(file), "tar_bytes": file.tell()}
    names = [folder.name(index) for index in planned.samples]
    labels = folder.labels[planned.samples.start : planned.samples.stop].tolist()
    columns = {"names": names, "offsets": offsets, "sizes": sizes, "labels": labels}
    disk.write_complete(index_file(planned.tar), json.dumps({**facts, **columns}).encode())


def _content(folder: ImageFolder, number: int) -> bytes:
    try:
        return folder.content(number)
    except DamagedPictureError:
        return b""


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))
