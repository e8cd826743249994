"""How an attempt ends: end.json, written last by rank 0, or an error file and a hard exit."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from hpcddp.errors import HpcddpError
from hpcddp.records import SCHEMA, error_file, write_json
from hpcddp.worker.ranks import Rank


def write_end(attempt: Path, state: str, reason: str | None, **facts: Any) -> None:
    """end.json; `state` is `done` or `failed`, `reason` the sentence for a failure."""
    record = {"schema": SCHEMA, "state": state, "reason": reason, "ended_unix_ns": time.time_ns(), **facts}
    write_json(attempt / "end.json", record)


def fail(attempt: Path, rank: Rank, error: BaseException) -> NoReturn:
    """Records the error and ends the process at once, so that no thread of NCCL, gloo or a loader can keep it alive."""
    try:
        traceback.print_exception(error)
        write_json(error_file(attempt, rank.rank), _error_record(rank, error))
        if rank.rank == 0 and not (attempt / "end.json").exists():
            write_end(attempt, "failed", first_cause(attempt))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


def first_cause(attempt: Path) -> str | None:
    """The earliest error of the attempt as a sentence: ranks that die of another's death come after it."""
    errors = [json.loads(file.read_text(encoding="utf-8")) for file in (attempt / "ranks").glob("*.error.json")]
    if not errors:
        return None
    cause = min(errors, key=lambda error: int(error["unix_ns"]))
    kind = "" if cause["type"] == HpcddpError.__name__ else f"{cause['type']}: "
    return f"rank {cause['rank']} on {cause['host']}: {kind}{cause['message']}"


def _error_record(rank: Rank, error: BaseException) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "rank": rank.rank,
        "host": rank.host,
        "unix_ns": time.time_ns(),
        "type": type(error).__name__,
        "message": _own_words(error),
        "traceback": "".join(traceback.format_exception(error)),
    }


def _own_words(error: BaseException) -> str:
    """The message alone: of an error in a loader's process, torch puts the whole traceback before it."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    before, _, words = str(error).rpartition(f"\n{name}: ")
    return words.strip() if before.startswith("Caught ") else str(error)
