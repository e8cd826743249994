"""The node's own disk: where it is, how large, and how fast a file is read that is not in memory. Standard library only."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from hpcddp.core.job_records import Disk

FILE_BYTES = 2**29
CHUNK_BYTES = 2**22

OF_A_NETWORK = ("nfs", "lustre", "gpfs", "beegfs", "ceph", "fuse", "wekafs", "panfs", "dvs")
"""How types of file systems begin that other nodes have as well."""

IN_MEMORY = ("tmpfs", "ramfs")


def writable_folder(env: Mapping[str, str] = os.environ) -> Path:
    """SLURM_TMPDIR, TMPDIR or /tmp, the first that can be written to."""
    places = [env[name] for name in ("SLURM_TMPDIR", "TMPDIR") if name in env]
    return Path(next((place for place in places if os.path.isdir(place) and os.access(place, os.W_OK)), "/tmp"))


def read_disk(env: Mapping[str, str] = os.environ, mounts: Path = Path("/proc/mounts")) -> Disk:
    """Where the job's temporary files go: SLURM_TMPDIR, TMPDIR or /tmp."""
    path = Path(env.get("SLURM_TMPDIR") or env.get("TMPDIR") or "/tmp")
    try:
        kind = filesystem(path.resolve(), mounts.read_text(encoding="utf-8", errors="replace"))
        if kind.startswith((*OF_A_NETWORK, *IN_MEMORY)):
            return Disk(path=str(path), why_not=f"{path} is {kind}, not a disk of the node")
        space = os.statvfs(path)
        gb = space.f_blocks * space.f_frsize // 10**9
        if space.f_bavail * space.f_frsize < 2 * FILE_BYTES:
            return Disk(path=str(path), gb=gb, why_not=f"{path} has too little free space to measure its read rate")
        return Disk(path=str(path), gb=gb, read_gbs=_read_gbs(path))
    except OSError as error:
        return Disk(path=str(path), why_not=f"{path} cannot be used: {error.strerror or error}")


def filesystem(path: Path, mounts: str) -> str:
    """The type of the one that holds the path, by the lines of /proc/mounts; `unknown` where none does."""
    found = [(line.split()[1], line.split()[2]) for line in mounts.splitlines() if len(line.split()) > 2]
    holding = [(point, kind) for point, kind in found if path == Path(point) or Path(point) in path.parents]
    return max(holding, key=lambda each: len(each[0]), default=("", "unknown"))[1]


def _read_gbs(folder: Path) -> float:
    chunk = os.urandom(CHUNK_BYTES)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(FILE_BYTES // CHUNK_BYTES):
            file.write(chunk)
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        begun_s = time.perf_counter()
        while file.read(CHUNK_BYTES):
            pass
        return FILE_BYTES / (time.perf_counter() - begun_s) / 1e9
