"""ImageNet packed into tar files, as `hpcddp data pack imagenet` writes them, for file systems that suffer from small files.

    imagenet.json                            the manifest, renamed into place when everything else is there
    train-00000.tar  train-00000.tar.json    WebDataset's layout: NUMBER.jpg and NUMBER.cls of each picture; beside it the index
    val-00000.tar    val-00000.tar.json

Pictures are numbered as the folder lists them, so that order and samples are the folder's. Each is read at its offset.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from hpcddp.core.catalog import IMAGENET
from hpcddp.core.errors import UsageError
from hpcddp.core.text import thousands
from hpcddp.data.pictures.image_folder import FOLDERS, DamagedPictureError, PackedNames
from hpcddp.data.roots import decode_manifest
from hpcddp.data.source import Split

TAR_MANIFEST = "imagenet.json"
BLOCK = tarfile.BLOCKSIZE
AGAIN = "pack it again with `hpcddp data pack imagenet`"
COLUMNS = ("offsets", "sizes", "labels")


@dataclass(frozen=True, kw_only=True)
class ShardFacts:
    """One tar file."""

    name: str
    samples: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class PackManifest:
    """What a folder of tar files holds."""

    schema: Literal[1] = 1
    classes: tuple[str, ...]
    train: tuple[ShardFacts, ...]
    val: tuple[ShardFacts, ...]


def index_file(tar: Path) -> Path:
    """Beside the tar."""
    return tar.with_name(f"{tar.name}.json")


def member_name(number: int) -> str:
    """Of the picture of that number in its split."""
    return f"{number:09d}.jpg"


def read_pack_manifest(root: Path) -> PackManifest:
    """UsageError for one that is damaged, or that a newer version wrote."""
    found = decode_manifest(PackManifest, root / TAR_MANIFEST, AGAIN)
    for shard in (*found.train, *found.val):
        if Path(shard.name).name != shard.name:
            raise UsageError(f"{root / TAR_MANIFEST} names {shard.name!r}, which does not exist beside it: {AGAIN}")
    return found


class TarShards:
    """A split's pictures in tar files: labels, names, and bytes by offset.

    Files are opened when they are first read from, and read at positions: processes that were forked since may share them.
    """

    def __init__(self, root: Path, split: Split) -> None:
        manifest = read_pack_manifest(root)
        shards = manifest.train if split == "train" else manifest.val
        if not shards:
            raise UsageError(f"{root / TAR_MANIFEST} names no tar file of {FOLDERS[split]}: {AGAIN}")
        self._tars = [root / shard.name for shard in shards]
        self._files: dict[int, int] = {}
        indices = [read_index(root / shard.name, shard) for shard in shards]
        columns = {name: torch.cat([index[name] for index in indices]) for name in COLUMNS}
        self._offsets, self._sizes, self.labels = (columns[name] for name in COLUMNS)
        if len(self.labels) and int(self.labels.max()) >= len(manifest.classes):
            raise UsageError(f"the index of a tar file in {root} has labels beyond its {len(manifest.classes)} classes: {AGAIN}")
        self._names = PackedNames([name for index in indices for name in index["names"]])
        self._shard_ends = torch.tensor([shard.samples for shard in shards]).cumsum(0)
        for first in (int(end) - shard.samples for end, shard in zip(self._shard_ends, shards, strict=True)):
            self._check_first(first)

    def name(self, index: int) -> str:
        """CLASS/FILE, as in the folder that was packed."""
        return self._names[index]

    def content(self, index: int) -> bytes:
        """The picture's file; DamagedPictureError where the tar holds something else at its place."""
        shard = int(torch.searchsorted(self._shard_ends, index, right=True))
        offset, size = int(self._offsets[index]), int(self._sizes[index])
        try:
            found = os.pread(self._opened(shard), BLOCK + size, offset - BLOCK)
            header = tarfile.TarInfo.frombuf(found[:BLOCK], "utf-8", "surrogateescape")
        except (OSError, tarfile.TarError) as error:
            raise DamagedPictureError(f"{self._tars[shard].name} cannot be read at its place: {error}") from error
        if (header.name, header.size) != (member_name(index), size) or len(found) != BLOCK + size:
            raise DamagedPictureError(f"{self._tars[shard].name} holds something else at its place")
        return found[BLOCK:]

    def _opened(self, shard: int) -> int:
        if shard not in self._files:
            self._files[shard] = os.open(self._tars[shard], os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        return self._files[shard]

    def _check_first(self, index: int) -> None:
        """A tar of the same length may be another one."""
        try:
            self.content(index)
        except DamagedPictureError as error:
            raise UsageError(f"{error}: the index beside it is of another tar, or it is damaged; {AGAIN}") from error


def read_index(tar: Path, facts: ShardFacts) -> dict[str, Any]:
    """Its columns as tensors, and the names; UsageError where it is missing, damaged or of another tar."""
    file = index_file(tar)
    try:
        held = tar.stat().st_size
        found = json.loads(file.read_text(encoding="utf-8"))
        index: dict[str, Any] = {name: torch.tensor(found[name], dtype=torch.int64) for name in COLUMNS}
        index["names"] = [os.fsencode(name) for name in found["names"]]
    except FileNotFoundError as error:
        missing = "the tar file" if Path(error.filename) == tar else "the index of"
        raise UsageError(f"{missing} {tar} is missing: {AGAIN}") from error
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, OverflowError) as error:
        raise UsageError(f"{file} is not an index of a tar file ({error}): {AGAIN}") from error
    if held != facts.size_bytes or found.get("tar_bytes") != held:
        raise UsageError(f"{tar} has {thousands(held)} bytes, and its index is of one with {found.get('tar_bytes')!r}: {AGAIN}")
    if found.get("sha256") != facts.sha256:
        raise UsageError(f"{file} is the index of another tar than {tar.name}: {AGAIN}")
    if not _consistent(index, held, facts.samples):
        raise UsageError(f"{file} does not list {thousands(facts.samples)} images inside {tar.name}: {AGAIN}")
    return index


def _consistent(index: dict[str, Any], held: int, samples: int) -> bool:
    """Every picture lies inside the tar, behind its header."""
    columns: Sequence[Tensor] = [index[name] for name in COLUMNS]
    if {len(index["names"]), *(column.numel() for column in columns)} != {samples} or any(each.dim() != 1 for each in columns):
        return False
    offsets, sizes, labels = columns
    inside = (offsets >= BLOCK) & (sizes >= 0) & (offsets <= held - sizes)
    return bool((inside & (labels >= 0) & (labels < IMAGENET.classes)).all())
