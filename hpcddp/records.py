"""The records of an attempt, as files: names, columns and the writers. Standard library only, Python 3.10.

Everything is written as the job goes, flushed once a second while steps go on, readable without hpcddp. An attempt's folder:

    launch.json            by rank 0 once all ranks have met: hosts, versions, profile as used, environment
    ranks/00000.steps.csv  one row per step of that rank, integer nanoseconds; an empty cell was not measured
    ranks/00000.error.json by a rank that fails: exception, message, host
    nodes/HOST.json        by the first rank of each node: its processors and GPUs
    events.jsonl           kept for warnings and checkpoints, one per line, by rank 0; nothing writes it yet
    end.json               by rank 0, renamed into place last: state, reason, gates, rows and checksum per rank

Version history of SCHEMA: 1 (0.1.0) as above.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any

SCHEMA = 1

PARTS = ("data_wait", "h2d_exposed", "forward", "backward", "comm_exposed", "optimizer", "record", "other")
"""The parts of a step in the order they happen; each lies between two marks on one timeline."""

STEP_COLUMNS = (
    "step",
    "flags",
    "start_ns",
    "data_wait_ns",
    "h2d_exposed_ns",
    "h2d_hidden_ns",
    "forward_ns",
    "backward_ns",
    "comm_exposed_ns",
    "optimizer_ns",
    "record_ns",
    "other_ns",
    "total_ns",
)
"""`step` counts from 0 over the attempt, `start_ns` is Unix time; h2d_hidden_ns overlaps other parts and is outside their sum."""

WARMUP = 1
"""Bit of `flags`: the step belongs to the warm-up and counts in no statistic."""

FLUSH_EVERY_S = 1.0


def steps_file(attempt: Path, rank: int) -> Path:
    """Where a rank's step rows are."""
    return attempt / "ranks" / f"{rank:05d}.steps.csv"


def error_file(attempt: Path, rank: int) -> Path:
    """Where a rank that failed says why."""
    return attempt / "ranks" / f"{rank:05d}.error.json"


def write_json(file: Path, plain: Any) -> None:
    """Writes aside, syncs, renames: a reader sees the old file, or the whole new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    with aside.open("w", encoding="utf-8") as out:
        json.dump(plain, out, indent=1, sort_keys=True, allow_nan=False)
        out.write("\n")
        out.flush()
        os.fsync(out.fileno())
    aside.replace(file)


def append_line(file: Path, plain: Any) -> None:
    """One JSON line added in a single write, synced: lines of concurrent writers do not mix on a local file system."""
    file.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n"
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(handle, line.encode())
        os.fsync(handle)
    finally:
        os.close(handle)


class StepWriter:
    """Appends step rows to a rank's CSV; `rows` and `crc32` (of all bytes, header included) go into end.json."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._out = file.open("xb")
        self._pending = [",".join(STEP_COLUMNS)]
        self._flush_at = 0.0
        self.rows = 0
        self.crc32 = 0

    def row(self, values: tuple[int | None, ...]) -> None:
        """One step, in the order of STEP_COLUMNS; None was not measured."""
        self._pending.append(",".join("" if value is None else str(value) for value in values))
        self.rows += 1
        now = time.monotonic()
        if now >= self._flush_at:
            self.flush()
            self._flush_at = now + FLUSH_EVERY_S

    def flush(self) -> None:
        """Hands everything to the operating system."""
        if self._pending:
            data = ("\n".join(self._pending) + "\n").encode()
            self._pending.clear()
            self._out.write(data)
            self._out.flush()
            self.crc32 = zlib.crc32(data, self.crc32)

    def __enter__(self) -> StepWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.flush()
        self._out.close()
