"""How often each point shall be run until its median is known well enough."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hpcddp.core.text import count

FEWEST = 6
"""Runs below which the 95 % interval of a median is not known: the range of five holds it with 93.75 %."""

Known = Mapping[str, tuple[int, float | None]]
"""By label, of points whose runs are all done and count: how many are compared, and half the interval's width in %."""


def repeats_until(labels: Iterable[str], had: Mapping[str, int], known: Known, percent: float, at_most: int) -> dict[str, int]:
    """Runs in all by label. `had`: those begun or asked for so far.

    As many as needed up to six at once, then one at a time; none more while those so far are not all done, or where one does not
    count.
    """
    return {label: min(at_most, had.get(label, 0) + _more(label, had, known, percent)) for label in labels}


def _more(label: str, had: Mapping[str, int], known: Known, percent: float) -> int:
    if not had.get(label):
        return FEWEST
    if label not in known:
        return 0
    runs, half_percent = known[label]
    if half_percent is None:
        return max(0, FEWEST - runs)
    return 1 if half_percent > percent else 0


def open_points(labels: Iterable[str], known: Known, percent: float) -> list[str]:
    """Those whose medians are not known to `percent`."""
    halves = {label: known[label][1] if label in known else None for label in labels}
    return [label for label, half_percent in halves.items() if half_percent is None or half_percent > percent]


def rejected_words(label: str, runs: Iterable[int]) -> str:
    """What to do about them: none are added beside runs that were rejected."""
    folders = " and ".join(f"{label}/r{run}" for run in runs)
    return f"{label}: a run was rejected, `hpcddp analyze` says why; to have it again, remove {folders}, then submit again"


def how_well(label: str, had: Mapping[str, int], known: Known, percent: float, at_most: int) -> str:
    """A line for the user."""
    if label not in known:
        return f"{label}: its median is not known: its runs are not all done"
    runs, half_percent = known[label]
    well = "not known" if half_percent is None else f"known to {half_percent:.1f} %"
    spent = had[label] >= at_most and _more(label, had, known, percent)
    end = f"; no more are added: --max-repeat is {at_most}" if spent else ""
    return f"{label}: its median is {well} from {count(runs, 'run')}{end}"
