"""Names of nodes as Slurm lists them: gn01, gn02, gn03 and gn07 are `gn[01-03,07]`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def node_list(names: Iterable[str]) -> str:
    """The shortest list that differs in the last number of a name only; the reverse of core.node_list.expand."""
    plain: list[str] = []
    numbered: dict[tuple[str, str], list[str]] = {}
    for name in sorted(set(names)):
        found = re.fullmatch(r"(.*?)(\d+)(\D*)", name)
        if found is None:
            plain.append(name)
        else:
            numbered.setdefault((found[1], found[3]), []).append(found[2])
    return ",".join([*plain, *(part for (before, after), digits in numbered.items() for part in _lists(before, digits, after))])


def _lists(before: str, digits: Sequence[str], after: str) -> list[str]:
    """A list of the numbers without zeros in front, and one for each width of those with them."""
    padded = {len(each) for each in digits if each.startswith("0") and len(each) > 1}
    groups: dict[int, list[int]] = {}
    for each in digits:
        groups.setdefault(len(each) if len(each) in padded else 1, []).append(int(each))
    return [_group((before, width, after), numbers) for width, numbers in sorted(groups.items())]


def _group(key: tuple[str, int, str], numbers: Sequence[int]) -> str:
    before, width, after = key
    inside = ",".join(_range(first, last, width) for first, last in _runs(sorted(numbers)))
    return f"{before}[{inside}]{after}" if len(numbers) > 1 else f"{before}{inside}{after}"


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each run without a gap."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _range(first: int, last: int, width: int) -> str:
    return f"{first:0{width}}" if first == last else f"{first:0{width}}-{last:0{width}}"
