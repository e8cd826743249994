"""Text for terminals: aligned tables and sizes in words."""

from __future__ import annotations

from collections.abc import Sequence


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


def size(count_bytes: float) -> str:
    """`4.2 MB`: decimal units, two digits that matter."""
    for unit in ("B", "kB", "MB", "GB"):
        if count_bytes < 1000:
            return f"{count_bytes:.2g} {unit}" if count_bytes < 10 and unit != "B" else f"{count_bytes:.0f} {unit}"
        count_bytes /= 1000
    return f"{count_bytes:.1f} TB"


def count(number: int, noun: str) -> str:
    """`1 run`, `3 runs`, `6,600 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
