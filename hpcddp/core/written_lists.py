"""Lists as they are written: of processors by Linux, `0-7,64-71`, and of nodes by Slurm, `gn[01-03,07]`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hpcddp.core.run_root import spans

MOST_CPUS = 1 << 16
"""A number from here on is no processor's: Linux is built for 8,192 of them at most (NR_CPUS)."""


def parse_cpu_list(text: str) -> frozenset[int]:
    """The numbers of `0-7,64-71`; ValueError where it is no such list."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, dash, last = part.partition("-")
        low, high = int(first), int(last if dash else first)
        if not 0 <= low <= high < MOST_CPUS:
            raise ValueError(f"{part!r} is not a list of processors")
        found.update(range(low, high + 1))
    return frozenset(found)


def cpu_list(numbers: Iterable[int]) -> str:
    """`0-7,64-71`; the reverse of parse_cpu_list."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans(numbers))


PART = re.compile(r"[^\[\],\s;+]*(?:\[[^\[\]]*\][^\[\],\s;+]*)?")
MOST_NODES = 100_000


def expand_node_list(text: str) -> list[str]:
    """The names in the order they are written; ValueError names the part that is no node list."""
    names: list[str] = []
    position = 0
    while position < len(text):
        if text[position] in ", ;+\t":
            position += 1
            continue
        found = PART.match(text, position)
        part = found.group() if found else ""
        if not part:
            raise ValueError(f"`{text}` is not a node list: `{text[position:]}` does not close or open its brackets")
        names += _one(part, text)
        position += len(part)
    return names


def _one(part: str, text: str) -> list[str]:
    """`gn[01-03]` or `gn07`."""
    matched = re.fullmatch(r"([^\[\]]*)\[([^\[\]]*)\](.*)", part)
    if matched is None:
        return [part]
    before, inside, after = matched.groups()
    return [f"{before}{number}{after}" for piece in inside.split(",") for number in _numbers(piece.strip(), text)]


def _numbers(piece: str, text: str) -> list[str]:
    """`03` or `01-03`, zeros in front kept."""
    matched = re.fullmatch(r"(\d+)(?:-(\d+))?", piece)
    if matched is None:
        raise ValueError(f"`{text}` is not a node list: `{piece}` is neither a number nor a range of two")
    first, last = matched.group(1), matched.group(2) or matched.group(1)
    if not int(first) <= int(last) < int(first) + MOST_NODES:
        raise ValueError(f"`{text}` is not a node list: the range `{piece}` runs backwards or is too long")
    return [f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1)]
