"""Text for terminals: aligned tables and sizes in words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any


def table(header: Sequence[str], rows: Sequence[Sequence[object]], *, left: Sequence[str] = (), indent: str = "  ") -> str:
    """Columns two spaces apart, numbers to the right, the columns named in `left` to the left; None prints as `-`."""
    cells = [[str(name) for name in header], *(["-" if cell is None else str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(header))]
    lines = []
    for line in cells:
        padded = (
            text.ljust(width) if name in left else text.rjust(width)
            for text, width, name in zip(line, widths, header, strict=True)
        )
        lines.append((indent + "  ".join(padded)).rstrip())
    return "\n".join(lines)


def natural(text: str) -> list[str | int]:
    """Sorts by the numbers in a text, of up to 18 digits each: n2 before n10."""
    return [int(part) if i % 2 else part for i, part in enumerate(re.split("([0-9]{1,18})", text))]


def escape_controls(text: str) -> str:
    r"""The text with what a terminal would act on (escape sequences, marks that turn text around) as `\x1b`: records, bundles and
    tables come from others.
    """
    if text.isprintable():
        return text
    acting = (each for each in set(text) - {"\n", "\t"} if unicodedata.category(each) in ("Cc", "Cf", "Cs"))
    return text.translate({ord(each): each.encode("unicode_escape").decode() for each in acting})


def escape_json(value: Any) -> Any:
    """A JSON value with every string escaped, keys included: to escape the JSON text would make it invalid."""
    if isinstance(value, dict):
        return {escape_json(key): escape_json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [escape_json(each) for each in value]
    return escape_controls(value) if isinstance(value, str) else value


def one_line(text: str) -> str:
    """The text without line breaks: a name or a reason never looks like a line of its own."""
    return " ".join(text.split())


def merge_similar(texts: Iterable[str], at_most: int = 2) -> list[str]:
    """Each text once; of more than `at_most` that differ in numbers alone the first, and how many there are besides."""
    kinds: dict[str, list[str]] = {}
    for text in dict.fromkeys(texts):
        kinds.setdefault(re.sub(r"\d+", "0", text), []).append(text)
    return [
        text
        for same in kinds.values()
        for text in (same if len(same) <= at_most else [f"{same[0]} (and {thousands(len(same) - 1)} more like it)"])
    ]


def first_few(names: Sequence[str], at_most: int = 4) -> str:
    """`a, b, c, d and 96 more`"""
    more = len(names) - at_most
    return ", ".join(names[:at_most]) + (f" and {thousands(more)} more" if more > 0 else "")


def size(count_bytes: float) -> str:
    """`4.2 MB`: decimal units, two digits that matter."""
    for unit in ("B", "kB", "MB", "GB"):
        if count_bytes < 1000:
            return f"{count_bytes:.2g} {unit}" if count_bytes < 10 and unit != "B" else f"{count_bytes:.0f} {unit}"
        count_bytes /= 1000
    return f"{count_bytes:.1f} TB"


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3.5 h`."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 99.5 * 60 else f"{seconds / 3600:.1f} h"


def thousands(number: float, decimals: int = 0) -> str:
    """`6,600`, with decimals `1,234.5`: the one place that sets thousands apart."""
    return f"{number:,.{decimals}f}"


def count(number: int, noun: str) -> str:
    """`1 run`, `3 runs`, `6,600 files`."""
    return f"{thousands(number)} {noun}{'' if number == 1 else 's'}"


def message_size(count_bytes: int) -> str:
    """`32 KiB`, `1 GiB`, `1020 B`: the largest binary unit that it is a whole number of."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count_bytes >= 1 << power and count_bytes % (1 << power) == 0:
            return f"{count_bytes >> power} {unit}"
    return f"{count_bytes} B"
