"""Lines of each room of the program against its limit in setup.cfg: `python -m tests.rooms` is part of `make lint`.

A room is a folder right below hpcddp/ or analysis/ with all that is in it. To raise a limit is a change that one sees in a diff;
`--limits` prints the table with 3 % above what there is.
"""

from __future__ import annotations

import configparser
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOM = 1.03
"""What a limit leaves, as a factor."""


def sizes(root: Path = ROOT) -> dict[str, int]:
    """Room -> lines of its Python files."""
    lines = Counter[str]()
    for package in ("hpcddp", "analysis"):
        for file in (root / package).rglob("*.py"):
            lines["/".join(file.relative_to(root).parts[:-1][:2])] += file.read_text().count("\n")
    return dict(sorted(lines.items()))


def too_large(found: dict[str, int], limits: dict[str, int]) -> list[str]:
    """A sentence for each room beyond its limit, or without one."""
    words = "make it smaller, or raise its limit in setup.cfg"
    beyond = [(room, lines) for room, lines in found.items() if lines > limits.get(room, 0)]
    return [f"{room} has {lines:,} lines, at most {limits.get(room, 0):,}: {words}" for room, lines in beyond]


def main(arguments: list[str]) -> int:
    """1 where a room is beyond its limit."""
    found = sizes()
    if arguments == ["--limits"]:
        print("\n".join(f"{room} = {round(ROOM * lines)}" for room, lines in found.items()))
        return 0
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    said = too_large(found, {room: int(lines) for room, lines in config["rooms"].items()})
    print("\n".join(said), end="\n" if said else "")
    return int(bool(said))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
