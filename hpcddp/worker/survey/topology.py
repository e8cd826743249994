"""What joins GPUs and network adapters of a node, as `nvidia-smi topo -m` prints it, or GPUs as `rocm-smi --showtopo` does."""

from __future__ import annotations

import re

WORD = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NAME = re.compile(r"(GPU|NIC)\d+|mlx\d+_\w+|\w*hsn\d+|rdmap\w+|efa_\d+")
_LEGEND = re.compile(r"^\s*(NIC\d+): (\S+)\s*$", re.MULTILINE)


def parse_topology(text: str) -> dict[str, tuple[str, ...]]:
    """Name -> row, in the order of the rows; empty where the text has no such matrix. NIC0 and so on by their names."""
    lines = [line.split() for line in _COLOUR.sub("", text).splitlines()]
    header = next((words for words in lines if words and words[0] == "GPU0"), [])
    names = [word for word in header if _NAME.fullmatch(word)]
    called = dict(_LEGEND.findall(text))
    rows = {words[0]: tuple(words[1 : len(names) + 1]) for words in lines if words and words[0] in names and words != header}
    if set(rows) != set(names) or not all(len(row) == len(names) and all(map(WORD.fullmatch, row)) for row in rows.values()):
        return {}
    return {called.get(name, name): rows[name] for name in names}


def parse_amd_topology(text: str) -> dict[str, tuple[str, ...]]:
    """The matrix of link types between two GPUs, with X for the GPU itself, which is 0 there; empty where there is none."""
    _, _, section = text.partition("Link Type between two GPUs")
    rows = [line.split() for line in section.partition("Numa Nodes")[0].splitlines()]
    names = next((words for words in rows if words and words[0] == "GPU0"), [])
    matrix = {
        words[0]: tuple("X" if word == "0" else word for word in words[1:]) for words in rows if words[1:] and words != names
    }
    matrix = {name: row for name, row in matrix.items() if name in names}
    square = list(matrix) == names and all(
        len(row) == len(names) and set(row) <= {"X", "XGMI", "PCIE"} for row in matrix.values()
    )
    return matrix if square else {}
