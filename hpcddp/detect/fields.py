"""Values as Slurm writes them, in text and in JSON, as numbers and words; None where Slurm does not say.

JSON differs from version to version (data_parser plug-ins v0.0.39 to v0.0.46): a number is plain, or a mapping
`{set, infinite, number}`; a list is a list, or text with commas.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hpcddp.backends.slurm_time import limit_min

NO_LIMIT = 0
"""A limit that Slurm says there is none of; None is a limit that it does not say."""

NOTHING = {"", "(null)", "N/A", "None", "n/a"}
"""Slurm's words for no value."""

RAW_NO_LIMIT = range(0xFFFFFFFD, 0x100000000)
"""INFINITE and NO_VAL of slurm.h, which 23.02 writes as plain numbers."""

MIG_SLICE = re.compile(r"(?<!\d)[1-7]g[._-]?\d+|(?<![a-z])mig(?![a-z])", re.IGNORECASE)
"""A GRES type that is a part of a GPU: `a100_1g.5gb`, `1g.10gb`. A process uses one, and NCCL joins none (NVIDIA, MIG guide)."""


def pairs(line: str) -> dict[str, str]:
    """The `Key=value` of a line of `scontrol --oneliner`; of a repeated key the first, as free text comes last."""
    found: dict[str, str] = {}
    for key, value in re.findall(r"(?:^|\s)([A-Za-z_]\w*)=(\S*)", line):
        found.setdefault(key, value)
    return found


def word(text: object) -> str | None:
    """Text, or None for Slurm's words for nothing."""
    return None if not isinstance(text, str) or text.strip() in NOTHING else text.strip()


def names(value: object) -> tuple[str, ...] | None:
    """A list of names, from a list or from text with commas."""
    if isinstance(value, str):
        return tuple(part for part in value.split(",") if part) if word(value) else ()
    if isinstance(value, Sequence):
        return tuple(str(part) for part in value)
    return None


def integer(text: object) -> int | None:
    """A count, from text or a plain number."""
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    return int(text) if isinstance(text, str) and re.fullmatch(r"\d+", text) else None


def number(text: object) -> float | None:
    """A factor, from text or a plain number."""
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        return float(text)
    return float(text) if isinstance(text, str) and re.fullmatch(r"\d+(\.\d*)?", text) else None


def limit(text: object) -> int | None:
    """A limit in text: `UNLIMITED` and nothing at all are no limit, a time is in minutes."""
    if not isinstance(text, str):
        return None
    if text in {"UNLIMITED", "INFINITE", "NONE", "", "-1"}:
        return NO_LIMIT
    number = integer(text)
    return number if number is not None else limit_min(text)


def json_limit(value: object) -> int | None:
    """The same in JSON: not set, and infinite, are no limit."""
    if not isinstance(value, Mapping):
        plain = integer(value)
        return NO_LIMIT if plain in RAW_NO_LIMIT else plain
    if value.get("set") is False or value.get("infinite") is True:
        return NO_LIMIT
    return integer(value.get("number"))


def smallest(*limits: int | None) -> int | None:
    """Of limits that hold at the same time; None where none is known."""
    known = [each for each in limits if each is not None]
    numbers = [each for each in known if each != NO_LIMIT]
    return min(numbers) if numbers else NO_LIMIT if known else None


def json_at(data: object, path: str) -> Any:
    """`json_at(qos, "limits/max/wall_clock/per/job")`; None where a part of the path is missing."""
    for key in path.split("/"):
        if not isinstance(data, Mapping) or key not in data:
            return None
        data = data[key]
    return data


def tres(value: object) -> dict[str, int] | None:
    """Resources with their counts, from `cpu=8,gres/gpu=1` or from JSON's list of them; `gres/gpu` is all types of GPUs."""
    if isinstance(value, str):
        found = re.findall(r"([^=,]+)=(\d+)", value)
        return {name: int(count) for name, count in found}
    if isinstance(value, Sequence):
        entries = [entry for entry in value if isinstance(entry, Mapping)]
        return {"/".join(filter(None, (e.get("type"), e.get("name")))): integer(e.get("count")) or 0 for e in entries}
    return None


def is_slice(gres_type: str | None) -> bool:
    """Whether its devices are MIG slices, which are no GPUs for DDP."""
    return gres_type is not None and MIG_SLICE.search(gres_type) is not None


def gpus(gres: object) -> tuple[tuple[str | None, int], ...] | None:
    """Type and count of the GPUs in a GRES text such as `gpu:v100:4(S:0-1),shard:8`; no type is None."""
    if not isinstance(gres, str):
        return None
    found: dict[str | None, int] = {}
    for entry in re.sub(r"\([^)]*\)", "", gres).split(","):
        kind, *rest = entry.strip().split(":")
        if kind != "gpu":
            continue
        count = integer(rest[-1]) if rest else 1
        typed = rest[:-1] if count is not None else rest
        name = ":".join(typed) or None
        found[name] = found.get(name, 0) + (1 if count is None else count)
    return tuple((name, count) for name, count in found.items() if count)
