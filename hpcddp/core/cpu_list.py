"""Lists of processors as Linux writes them: `0-7,64-71`."""

from __future__ import annotations

from collections.abc import Iterable

from hpcddp.core.run_key import spans

MOST = 1 << 16
"""A number from here on is no processor's: Linux is built for 8,192 of them at most (NR_CPUS)."""


def parse_cpu_list(text: str) -> frozenset[int]:
    """The numbers of `0-7,64-71`; ValueError where it is no such list."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, dash, last = part.partition("-")
        low, high = int(first), int(last if dash else first)
        if not 0 <= low <= high < MOST:
            raise ValueError(f"{part!r} is no list of processors")
        found.update(range(low, high + 1))
    return frozenset(found)


def cpu_list(numbers: Iterable[int]) -> str:
    """`0-7,64-71`; the reverse of parse_cpu_list."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans(numbers))
