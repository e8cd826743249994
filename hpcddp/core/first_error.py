"""Why an attempt failed, by what its ranks recorded: the earliest error. Standard library only, Python 3.10."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hpcddp.core.errors import HpcddpError


def first_cause(attempt: Path) -> str | None:
    """The earliest error of the attempt as a sentence: ranks that die of another's death come after it."""
    first = first_error(attempt)
    if first is None:
        return None
    if "fault" in first:
        return str(first["fault"]["sentence"])
    kind = "" if first["type"] == HpcddpError.__name__ else f"{first['type']}: "  # as 0.1.0 wrote it at first
    return f"rank {first['rank']} on {first['host']}: {kind}{first['message']}"


def first_error(attempt: Path) -> dict[str, Any] | None:
    """The earliest, those that only miss another rank after all others."""
    errors = [json.loads(file.read_text(encoding="utf-8")) for file in (attempt / "ranks").glob("*.error.json")]
    return min(errors, key=_order, default=None)


def _order(error: dict[str, Any]) -> tuple[bool, int]:
    return error.get("fault", {}).get("kind") in ("contact", "time_out"), int(error["unix_ns"])
