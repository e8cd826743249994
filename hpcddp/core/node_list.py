"""Slurm node lists in full: `gn[01-03,07]` is gn01, gn02, gn03, gn07."""

from __future__ import annotations

import re

PART = re.compile(r"[^\[\],\s;+]*(?:\[[^\[\]]*\][^\[\],\s;+]*)?")
MOST = 100_000


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
    if not int(first) <= int(last) < int(first) + MOST:
        raise ValueError(f"`{text}` is not a node list: the range `{piece}` runs backwards or is too long")
    return [f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1)]
