"""How an attempt ends: end.json, written last by rank 0, or an error file and a hard exit."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import NoReturn

from hpcddp.core.attempt_records import AttemptEnd, ErrorRecord, Fault, first_error
from hpcddp.core.records import error_file, write_json
from hpcddp.core.schema import encode
from hpcddp.worker.faults import own_words
from hpcddp.worker.ranks import Rank

RESERVED_BYTES = 16_384
"""Of disk, so that a run that fills it can say so."""

_ending = threading.Lock()
"""Taken by the thread that ends the process, and never given back."""


def reserve(attempt: Path) -> None:
    """Reserves disk space for the end.json of a failure; write_end gives it back."""
    attempt.mkdir(parents=True, exist_ok=True)
    with _reserve_file(attempt).open("wb") as out:
        out.write(bytes(RESERVED_BYTES))
        out.flush()
        os.fsync(out.fileno())


def write_end(attempt: Path, end: AttemptEnd) -> None:
    """Writes end.json, and gives the reserved space back."""
    write_json(attempt / "end.json", encode(end))
    _reserve_file(attempt).unlink(missing_ok=True)


def write_failure(attempt: Path, fault: Fault) -> None:
    """Writes end.json of a failure, into the reserved space where the disk is full."""
    end = AttemptEnd(state="failed", reason=fault.sentence, ended_unix_ns=time.time_ns(), fault=fault)
    try:
        write_end(attempt, end)
    except OSError:
        room = _reserve_file(attempt)
        with room.open("r+b") as out:
            out.write(json.dumps(encode(end), sort_keys=True).encode() + b"\n")
            out.truncate()
        room.replace(attempt / "end.json")


def fail(attempt: Path, rank: Rank, error: BaseException, fault: Fault, *, for_all: bool = False) -> NoReturn:
    """Records the error and ends the process at once, so that no thread of NCCL, gloo or a loader can keep it alive. `fault`:
    what is known to be the cause, which may be another rank; `for_all`: end.json too, as rank 0 writes it always."""
    _ending.acquire()
    try:
        with contextlib.suppress(OSError):
            traceback.print_exception(error)
        with contextlib.suppress(OSError):
            write_json(error_file(attempt, rank.rank), encode(error_record(rank, error, fault)))
        if (rank.rank == 0 or for_all) and not (attempt / "end.json").exists():
            first = first_error(attempt)
            write_failure(attempt, first.fault if first and first.fault else fault)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(1)


def end_with_others(rank: Rank, fault: Fault) -> NoReturn:
    """Ends the process without a record: the rank at fault, or rank 0, has written it."""
    _ending.acquire()
    try:
        print(f"hpcddp: rank {rank.rank} on {rank.host} ends with the other ranks: {fault.sentence}", file=sys.stderr, flush=True)
    finally:
        os._exit(1)


def error_record(rank: Rank, error: BaseException, fault: Fault) -> ErrorRecord:
    """What ranks/RANK.error.json says of an error that is being handled."""
    return ErrorRecord(
        rank=rank.rank,
        host=rank.host,
        unix_ns=time.time_ns(),
        type=type(error).__name__,
        message=own_words(error),
        traceback="".join(traceback.format_exception(error)),
        fault=fault,
    )


def _reserve_file(attempt: Path) -> Path:
    return attempt / ".end.reserve"
