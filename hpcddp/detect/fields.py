"""Values as Slurm writes them in text, as numbers and words; None where Slurm does not say."""

from __future__ import annotations

import re

from hpcddp.backends.slurm_words import limit_min

NO_LIMIT = 0
"""A limit that Slurm says there is none of; None is a limit that it does not say."""

NOTHING = {"", "(null)", "N/A", "None", "n/a"}
"""Slurm's words for no value."""

MIG_SLICE = re.compile(r"(?<!\d)[1-7]g[._-]?\d+|(?<![a-z])mig(?![a-z])", re.IGNORECASE)
"""A GRES type that is a part of a GPU: `a100_1g.5gb`, `1g.10gb`. A process uses one, and NCCL joins none (NVIDIA, MIG guide)."""


def pairs(line: str) -> dict[str, str]:
    """The `Key=value` of a line of `scontrol --oneliner`; of a repeated key the first, as free text comes last."""
    found: dict[str, str] = {}
    for key, value in re.findall(r"(?:^|\s)([A-Za-z_]\w*)=(\S*)", line):
        found.setdefault(key, value)
    return found


def word(text: str | None) -> str | None:
    """Text, or None for Slurm's words for nothing."""
    return None if text is None or text.strip() in NOTHING else text.strip()


def names(text: str | None) -> tuple[str, ...] | None:
    """A list of names, from text with commas."""
    if text is None:
        return None
    return tuple(part for part in text.split(",") if part) if word(text) else ()


def integer(text: str | None) -> int | None:
    """A count."""
    return int(text) if text is not None and re.fullmatch(r"\d+", text) else None


def real_number(text: str | None) -> float | None:
    """A factor."""
    return float(text) if text is not None and re.fullmatch(r"\d+(\.\d*)?", text) else None


def limit(text: str | None) -> int | None:
    """A limit: `UNLIMITED` and nothing at all are no limit, a time is in minutes."""
    if text is None:
        return None
    if text in {"UNLIMITED", "INFINITE", "NONE", "", "-1"}:
        return NO_LIMIT
    number = integer(text)
    return number if number is not None else limit_min(text)


def smallest(*limits: int | None) -> int | None:
    """Of limits that hold at the same time; None where none is known."""
    known = [each for each in limits if each is not None]
    numbers = [each for each in known if each != NO_LIMIT]
    return min(numbers) if numbers else NO_LIMIT if known else None


def tres(text: str) -> dict[str, int]:
    """Resources with their counts, from `cpu=8,gres/gpu=1`; `gres/gpu` is all types of GPUs."""
    return {name: int(count) for name, count in re.findall(r"([^=,]+)=(\d+)", text)}


def is_slice(gres_type: str | None) -> bool:
    """Whether its devices are MIG slices, which are no GPUs for DDP."""
    return gres_type is not None and MIG_SLICE.search(gres_type) is not None


def gpus(gres: str | None) -> tuple[tuple[str | None, int], ...] | None:
    """Type and count of the GPUs in a GRES text such as `gpu:v100:4(S:0-1),shard:8`; no type is None."""
    if gres is None:
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
