"""Do the parts of a step fit into it, and does the GPU's utilisation fit beside the wait for data?"""

from __future__ import annotations

from collections.abc import Iterator

from hpcddp.analysis.audit.findings import Finding
from hpcddp.analysis.audit.groups import Groups
from hpcddp.analysis.audit.row import Row
from hpcddp.analysis.util.wording import clock, quantity

PARTS = {"compute": "compute", "comm": "communication", "data_wait": "wait for data"}

QUEUED = 0.1
"""The GPU may still work on what was queued while the process waits for data: for so much of the time."""


def check_parts(groups: Groups) -> Iterator[Finding]:
    """Parts longer than the whole, and GPUs said to be busy while they wait."""
    for row in groups.table.measured:
        yield from _parts(row)
        yield from _utilization(row)


def _parts(row: Row) -> Iterator[Finding]:
    time, parts = row.values.get("time"), {name: row.values[name] for name in PARTS if name in row.values}
    if not time or len(parts) < 2 or sum(each.interval.low for each in parts.values()) <= 1.02 * time.interval.high:
        return
    total = sum(each.value for each in parts.values())
    shown = clock(total) if time.clock else f"{quantity(total)} s"
    said = " and ".join(f"{PARTS[name]} {each}" for name, each in parts.items())
    sentence = f"{said} at {row.layout} are {shown}, more than the whole, {time}"
    yield Finding("parts_exceed_total", (row.line,), str(time), f"at least {shown}", sentence)


def _utilization(row: Row) -> Iterator[Finding]:
    time, wait, busy = (row.values.get(name) for name in ("time", "data_wait", "utilization"))
    if not time or not wait or not busy:
        return
    left = max(0.0, 1 - wait.interval.low / time.interval.high)
    if busy.interval.low > left + QUEUED:
        most = f"about {100 * left:.0f} %"
        what = f"GPU utilisation {busy} at {row.layout} stands beside a wait for data of {wait} in {time}"
        sentence = f"{what}, which leaves the GPU work for {most} of the time"
        yield Finding("utilization_contradicts", (row.line,), str(busy), f"at most {most}", sentence)
