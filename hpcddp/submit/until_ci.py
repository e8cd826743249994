"""`hpcddp submit --until-ci`: how many runs of each point the records so far call for, until its median is known well enough."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hpcddp.core.study_files import FEWEST
from hpcddp.core.text import count
from hpcddp.study.status import RunState
from hpcddp.submit.submission_plan import SubmissionPlan

Known = Mapping[str, tuple[int, float | None]]
"""By label, of points whose runs are all done and count: how many are compared, and half the interval's width in %."""


def with_repeats(
    plan: SubmissionPlan, states: Sequence[RunState], known: Known, percent: float, at_most: int
) -> tuple[SubmissionPlan, list[str]]:
    """The plan with as many runs of each point as its records so far call for, and a line on how well each point is known."""
    had: dict[str, int] = {}
    rejected: dict[str, list[int]] = {}
    for state in states:
        had[state.label] = max(state.run, had.get(state.label, 0))
        if state.phase == "done" and state.detail:  # the gates that failed
            rejected.setdefault(state.label, []).append(state.run)
    labels = [planned.point.label for planned in plan.points]
    lines = [
        rejected_words(label, rejected[label]) if label in rejected else how_well(label, had, known, percent, at_most)
        for label in labels
        if label in had
    ]
    return replace(plan, more=repeats_until(labels, had, known, percent, at_most), is_cut_at_budget=True), lines


def repeats_until(labels: Iterable[str], had: Mapping[str, int], known: Known, percent: float, at_most: int) -> dict[str, int]:
    """Runs in all by label. `had`: those begun or submitted so far. As many as needed up to six at once, then one at a time;
    none more while those so far are not all done, or where one does not count.
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
    """Those whose medians are not known to `percent`: --max-repeat or a rejected run ended it."""
    halves = {label: known[label][1] if label in known else None for label in labels}
    return [label for label, half_percent in halves.items() if half_percent is None or half_percent > percent]


def rejected_words(label: str, runs: Iterable[int]) -> str:
    """What to do about runs that were rejected: none are added beside them."""
    folders = " and ".join(f"{label}/r{run}" for run in runs)
    reason = f"A run of {label} was rejected; `hpcddp analyze` shows the reason"
    return f"{reason}. To repeat it, delete {folders} and run `hpcddp submit` again."


def how_well(label: str, had: Mapping[str, int], known: Known, percent: float, at_most: int) -> str:
    """How well the median of a point is known, and whether --max-repeat keeps runs from being added."""
    if label not in known:
        return f"The median of {label} is not known: some of its runs have not finished."
    runs, half_percent = known[label]
    well = "not known" if half_percent is None else f"known to {half_percent:.1f} %"
    spent = had[label] >= at_most and _more(label, had, known, percent)
    end = f" No more runs are added: --max-repeat is {at_most}." if spent else ""
    return f"The median of {label} is {well} from {count(runs, 'run')}.{end}"
