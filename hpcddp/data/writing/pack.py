"""Packs ImageNet's folders into tar files with an index each; tar_shards.py says what lies there.

Killed and started again, it keeps the finished files and ends with the same bytes: a tar follows from the pictures alone. Two
that run at once write files of their own names and rename them to the same content.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import to_json
from hpcddp.core.schema import encode
from hpcddp.data.image_folder import FOLDERS, DamagedPictureError, ImageFolder, class_names
from hpcddp.data.source import Split
from hpcddp.data.tar_shards import BLOCK, MANIFEST, PackManifest, ShardFacts, index_file, member_name

SAMPLES_PER_SHARD = 10_000
"""1.1 GB of ImageNet's: 134 tar files instead of 1.3 million of 110 KB, and a minute's work to lose when killed."""

COPIED_BYTES = 2**24
"""Read at a time for the checksum."""

SPLITS: tuple[Split, ...] = ("train", "eval")


@dataclass(frozen=True, kw_only=True)
class Packed:
    """What was packed."""

    pictures: int
    unreadable: int
    """Files that are none or cannot be read: each has its place, empty, as in the folder."""
    shards: int


def pack_imagenet(
    root: Path, out: Path, *, progress: Callable[[int], None], samples_per_shard: int = SAMPLES_PER_SHARD
) -> Packed:
    """Writes the tar files that `out` lacks. `progress` is called with the pictures that are new, file by file.

    HpcddpError where the folders are not ImageNet's, where `out` holds something else, or cannot hold all.
    """
    classes = class_names(root, "train")
    _check_classes(root, classes)
    folders = {split: ImageFolder(root, split) for split in SPLITS}
    try:
        out.mkdir(parents=True, exist_ok=True)
        plans = {split: _plan(out, split, len(folders[split].labels), samples_per_shard) for split in SPLITS}
        _check_space(out, folders, plans)
        shards = {}
        for split, planned in plans.items():
            shards[split] = [_packed_shard(folders[split], tar, samples, progress) for tar, samples in planned]
        manifest = PackManifest(classes=tuple(classes), train=tuple(shards["train"]), val=tuple(shards["eval"]))
        _replace(out / MANIFEST, f"{to_json(encode(manifest))}\n".encode())
    except OSError as error:
        raise HpcddpError(f"cannot pack into {out}: {error}; finished tar files stay, run again to go on") from error
    sizes = [size for planned in plans.values() for tar, _ in planned for size in _index(tar)["sizes"]]
    return Packed(pictures=len(sizes), unreadable=sizes.count(0), shards=sum(map(len, plans.values())))


def _check_classes(root: Path, classes: Sequence[str]) -> None:
    evaluated = class_names(root, "val")
    if list(classes) != evaluated:
        odd = sorted(set(classes) ^ set(evaluated))[0]
        lacking = "val" if odd in classes else "train"
        raise HpcddpError(f"{root / lacking} lacks the class `{odd}`: train and val must have the same classes")


def _plan(out: Path, split: Split, samples: int, per_shard: int) -> list[tuple[Path, range]]:
    """Which samples go into which file."""
    starts = range(0, samples, per_shard)
    name = FOLDERS[split]
    return [
        (out / f"{name}-{number:05d}.tar", range(start, min(start + per_shard, samples))) for number, start in enumerate(starts)
    ]


def _check_space(out: Path, folders: dict[Split, ImageFolder], plans: dict[Split, list[tuple[Path, range]]]) -> None:
    missing = [(folders[split], index) for split, plan in plans.items() for tar, part in plan if not _done(tar) for index in part]
    needed = sum(_size(folder.path(index)) + 4 * BLOCK for folder, index in missing)
    free = shutil.disk_usage(out).free
    if needed > free:
        raise HpcddpError(f"packing needs {needed / 1e9:,.1f} GB more in {out}, where {free / 1e9:,.1f} GB are free")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _done(tar: Path) -> bool:
    """The index is renamed into place behind its tar."""
    return index_file(tar).is_file() and tar.is_file() and tar.stat().st_size == _index(tar).get("tar_bytes")


def _index(tar: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(index_file(tar).read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return found


def _packed_shard(folder: ImageFolder, tar: Path, samples: range, progress: Callable[[int], None]) -> ShardFacts:
    """Writes tar and index unless they are there; HpcddpError where those that are there hold other pictures."""
    if _done(tar):
        if _index(tar).get("names") != [folder.name(index) for index in samples]:
            raise HpcddpError(f"{tar} holds other pictures than the folder has: choose another folder for the tar files")
    else:
        _write_shard(folder, tar, samples, progress)
    index = _index(tar)
    return ShardFacts(name=tar.name, samples=len(samples), size_bytes=tar.stat().st_size, sha256=str(index["sha256"]))


def _write_shard(folder: ImageFolder, tar: Path, samples: range, progress: Callable[[int], None]) -> None:
    part, offsets, sizes = _part(tar), [], []
    with open(part, "w+b") as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for number in samples:
                content = _content(folder, number)
                _add(archive, member_name(number), content)
                offsets.append(archive.offset - -(-len(content) // BLOCK) * BLOCK)
                sizes.append(len(content))
                _add(archive, f"{number:09d}.cls", str(int(folder.labels[number])).encode())
                progress(1)
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        digest = hashlib.sha256()
        while content := file.read(COPIED_BYTES):
            digest.update(content)
        written = file.tell()
    os.replace(part, tar)
    names, labels = [folder.name(index) for index in samples], folder.labels[samples.start : samples.stop].tolist()
    columns = {"names": names, "offsets": offsets, "sizes": sizes, "labels": labels}
    _replace(index_file(tar), json.dumps({"schema": 1, "tar_bytes": written, "sha256": digest.hexdigest(), **columns}).encode())


def _content(folder: ImageFolder, number: int) -> bytes:
    try:
        return folder.content(number)
    except DamagedPictureError:
        return b""


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def _replace(file: Path, content: bytes) -> None:
    """Written aside, flushed and renamed."""
    part = _part(file)
    with open(part, "wb") as aside:
        aside.write(content)
        aside.flush()
        os.fsync(aside.fileno())
    os.replace(part, file)


def _part(file: Path) -> Path:
    """A name that no other process writes to."""
    return file.with_name(f".{file.name}.{os.uname().nodename}.{os.getpid()}.part")
