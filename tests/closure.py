"""Closure: in every run that the tests make, the parts of each step add up to its total."""

from __future__ import annotations

import csv
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcddp.core.records import PARTS, steps_file

OFF_BY = 0.01
"""Of the total; the parts of a CPU's step add up exactly, those of a GPU's are each rounded by its events."""


@pytest.fixture(scope="session", autouse=True)
def closure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """When all tests have run, reads every whole file of steps below their folders."""
    yield
    odd = [
        sentence
        for end in sorted(tmp_path_factory.getbasetemp().rglob("end.json"))
        for sentence in that_do_not_add_up(end.parent)
    ]
    assert not odd, "\n".join(["steps whose parts do not add up to their total:", *odd])


def that_do_not_add_up(attempt: Path) -> Iterator[str]:
    """The first such step of each rank, in words. Of attempts that ended `done` only, and of files that are as end.json has them.

    Rows that a test made up may leave `other` out, and with it the claim to be whole; a worker's never do.
    """
    end, launch = _read(attempt / "end.json"), _read(attempt / "launch.json")
    for entry in end.get("ranks", ()) if end.get("state") == "done" else ():
        file = steps_file(attempt, entry["rank"])
        if file.is_file() and zlib.crc32(file.read_bytes()) == entry["crc32"]:
            odd = _first_odd(file, synthetic="clock" not in launch)
            yield from [f"{file}: {odd}"] if odd else []


def _first_odd(file: Path, *, synthetic: bool) -> str | None:
    with file.open(newline="") as lines:
        rows = csv.reader(lines)
        column = {name: place for place, name in enumerate(next(rows, ()))}
        parts = [column[f"{part}_ns"] for part in PARTS if column]
        for row in rows:
            total_ns, parts_ns = int(row[column["total_ns"]] or 0), sum(int(row[part] or 0) for part in parts)
            if abs(parts_ns - total_ns) >= OFF_BY * total_ns and not (synthetic and not row[column["other_ns"]]):
                return f"step {row[column['step']]} lasted {total_ns} ns and its parts {parts_ns} ns"
    return None


def _read(file: Path) -> dict[str, Any]:
    """{} for what a test has damaged, or left out."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
