"""Files without their pages in memory, and how fast the storage gives them in large pieces."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from hpcddp.core.data_bench_record import StorageRate
from hpcddp.worker.data_bench.agreement import all_greatest, all_sum
from hpcddp.worker.rendezvous import ProcessGroup

PIECE_BYTES = 4 << 20

Piece = tuple[Path, int]
"""A file, and where in it the piece begins."""


def drop_pages(files: Iterable[Path]) -> None:
    """What memory holds of these files is dropped (posix_fadvise), in so far as nobody has it mapped; what cannot be opened is
    passed over, as it cannot be read either.
    """
    for file in files:
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            with contextlib.suppress(OSError):  # a file system that is only read has none
                os.fsync(descriptor)  # pages that are still to be written stay
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError:
            pass  # a pipe
        finally:
            os.close(descriptor)


def storage_rate(group: ProcessGroup, files: Sequence[Path], seconds: float) -> StorageRate | None:
    """All ranks call it, and each reads its part of the files; None where there are none."""
    own = _share(list(_pieces(files)), group)
    if group.rank.local_rank == 0:
        drop_pages(files)
    all_greatest(group, 0.0)  # nobody reads before all is dropped
    read_bytes, took_s, pieces = _read(own, seconds)
    cold_s = all_greatest(group, took_s)
    again_bytes, again_took_s, _ = _read(own[:pieces], seconds)
    again_s = all_greatest(group, again_took_s)
    total_bytes, total_again_bytes = all_sum(group, read_bytes), all_sum(group, again_bytes)
    if not total_bytes or not cold_s or not again_s:
        return None
    return StorageRate(bytes_per_s=total_bytes / cold_s, again_bytes_per_s=total_again_bytes / again_s)


def _pieces(files: Iterable[Path]) -> Iterator[Piece]:
    for file in files:
        for offset in range(0, file.stat().st_size, PIECE_BYTES):
            yield file, offset


def _share(pieces: list[Piece], group: ProcessGroup) -> list[Piece]:
    """Neighbouring pieces are one rank's."""
    rank = group.rank
    return pieces[len(pieces) * rank.rank // rank.world : len(pieces) * (rank.rank + 1) // rank.world]


def _read(pieces: Sequence[Piece], seconds: float) -> tuple[int, float, int]:
    """Bytes, seconds, and how many pieces that were: all of them, or what could be had in the time."""
    total_bytes, count, path, descriptor = 0, 0, None, -1
    begun_s = time.perf_counter()
    for file, offset in pieces:
        if file != path:
            descriptor = _reopen(descriptor, file)
            path = file
        total_bytes += len(os.pread(descriptor, PIECE_BYTES, offset))
        count += 1
        if time.perf_counter() - begun_s > seconds:
            break
    took_s = time.perf_counter() - begun_s
    if descriptor >= 0:
        os.close(descriptor)
    return total_bytes, took_s, count


def _reopen(descriptor: int, file: Path) -> int:
    if descriptor >= 0:
        os.close(descriptor)
    return os.open(file, os.O_RDONLY | os.O_CLOEXEC)
