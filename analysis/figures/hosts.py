"""Hosts' names beside rows of figures."""

from __future__ import annotations

from collections.abc import Iterable

from hpcddp.analysis.util.wording import shortened

LETTERS = 12


def short_hosts(hosts: Iterable[str]) -> dict[str, str]:
    """Name -> a form that fits beside a row, different for each: `…134` for `ip-10-0-12-134` beside `ip-10-0-12-99`."""
    names = sorted({str(host) for host in hosts})
    short = zip(names, shortened(names, LETTERS), strict=True)
    return {name: cut if name.startswith(cut) else f"…{cut}" for name, cut in short}
