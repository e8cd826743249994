"""Stalls: steps that are much longer than a typical one come back, or are so long that the mean is far from the median."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.runs.step_times import Stalls
from hpcddp.analysis.util.wording import percent, quantity
from hpcddp.analysis.verdicts.comm import NOT_SPLIT, comm_share
from hpcddp.analysis.verdicts.context import LIMITED, Case, PointRow, Verdict, run_names, where
from hpcddp.analysis.verdicts.gates import disturbed
from hpcddp.analysis.verdicts.input import input_advice, input_share
from hpcddp.analysis.verdicts.settings import Advice, Set, phrase
from hpcddp.analysis.verdicts.steps import bursts
from hpcddp.core.text import count

MOST_AFTER_PAUSES = 0.5
"""Of the long steps, from which on checkpoints are what they come from."""

LONG_IN = {
    "data": "waiting for data",
    "communication": "communication",
    "records": "writing records",
    "computation": "computation",
    "checkpoint": "the first steps after a checkpoint",
    "unmarked": "longer in forward and backward, where waits for sharded parameters are not marked",
    "unknown": "parts that were not measured",
}
"""Cause -> in words."""


ADVICE: Mapping[str, Advice] = {
    "communication": "look at the figures of ranks and of one step: a rank that is late now and then, or others on the network",
    "records": "rows wait for the file system of the runs' folder: submit with `--runs` on another one",
    "unmarked": phrase(
        Set({"measure.comm": "on"}), " marks what ranks wait for: parameters before forward and backward, gradients after it"
    ),
}
OTHERWISE = "check other processes on the node, its clocks, and work that the model does in some steps only"
COLLECTING = phrase(
    "Python's garbage collection may cause the long steps: ",
    Set({"measure.gc": "frozen"}),
    f" excludes older objects from it; if stalls remain, {OTHERWISE}",
)


def stalls(case: Case) -> Iterator[Verdict]:
    """Points of which most runs stall: a verdict per series and cause."""
    for name, series in case.series:
        found = [(row, run) for _, row in series.iterrows() if (run := stalling(case, row))]
        for what in dict.fromkeys(cause_of(run) for _, run in found):
            mine = [(row, run) for row, run in found if cause_of(run) == what]
            yield _verdict(case, name, series, what, mine)


def stalling(case: Case, row: PointRow) -> Run | None:
    """The run of a point that stalls most, where at least half of its runs do; a network's bursts have a verdict of their own."""
    runs = case.runs_of(row)
    found = [run for run in runs if run.stalls and not bursts(case, run)]
    return max(found, key=lambda run: (lost_share(run), run.name)) if found and 2 * len(found) >= len(runs) else None


def lost_share(run: Run) -> float:
    """The share of a run's time that its steps take beyond a typical one's; below 0 where most steps are long."""
    return 1 - run.stalls.median_ns / run.stalls.mean_ns if run.stalls else 0.0


def stalled_share(case: Case, row: PointRow) -> float | None:
    """What stalls cost a point; None where another cause tells of the same."""
    run = stalling(case, row)
    if run is None or lost_share(run) <= 0:
        return None
    others = {"data": input_share, "communication": comm_share}
    other = others.get(cause_of(run))
    return None if other and other(case, row) is not None else lost_share(run)


def cause_of(run: Run) -> str:
    """The key of LONG_IN that says what the long steps of a run are long in."""
    found = run.stalls
    if found is None or not any(found.of.values()):
        return "unknown"
    if run.point and run.point.measure.resume and found.after_pause >= MOST_AFTER_PAUSES:
        return "checkpoint"
    cause = max(found.of, key=lambda what: found.of[what])
    unmarked = run.point is not None and run.point.sharded and run.point.measure.comm == "off" and run.point.ranks > 1
    return "unmarked" if unmarked and cause == "computation" else cause


def _verdict(case: Case, name: str, series: pd.DataFrame, what: str, found: Sequence[tuple[PointRow, Run]]) -> Verdict:
    rows = [row for row, _ in found]
    worst = max((run for _, run in found), key=lambda run: (lost_share(run), run.name))
    runs = [run for row in rows for run in case.runs_of(row) if run.stalls]
    more = f", and so in {count(len(runs) - 1, 'more run')}" if len(runs) > 1 else ""
    assert worst.stalls is not None
    return Verdict(
        where=where(rows, series, name),
        evidence=f"{_words(worst, worst.stalls, what)}{more}",
        todo=_advice(case, series, rows, worst, what),
        numbers={
            "mean_by_median": worst.stalls.mean_ns / worst.stalls.median_ns,
            "long_share": worst.stalls.long_share,
            "long_by_other": worst.stalls.long_ns / worst.stalls.other_ns,
            **{f"of_{cause}": share for cause, share in worst.stalls.of.items()},
        },
        runs=run_names(runs),
        weight=LIMITED + min(0.99, max(0.0, lost_share(worst))),
    )


def _words(run: Run, found: Stalls, what: str) -> str:
    mean, median, long, other = (quantity(ns / 1e6) for ns in (found.mean_ns, found.median_ns, found.long_ns, found.other_ns))
    share = f"{percent(found.of[what])} of the difference is {LONG_IN[what]}" if what in found.of else f"they are {LONG_IN[what]}"
    if what == "unknown":
        share = f"what is longer are {LONG_IN[what]}"
    often = f"{100 * found.long_share:.2g} %"
    return (
        f"steps of {run.name} take {mean} ms on average, a typical one (the median) {median}: {often} of them last {long} ms, "
        f"the others {other}; {share}"
    )


def _advice(case: Case, series: pd.DataFrame, rows: Sequence[PointRow], run: Run, what: str) -> Advice:
    """What to do about stalls; for data and communication it is the advice of the verdicts on these."""
    assert run.point is not None
    measure = run.point.measure
    if what == "data":
        return input_advice(case, series, rows)
    if what == "communication" and measure.comm == "off":
        return NOT_SPLIT
    if what == "checkpoint":
        rarer = Set({"measure.checkpoint_every_min": 2 * measure.checkpoint_every_min})
        return phrase("checkpoint writes slow the steps after them: ", rarer, ", or a faster file system")
    if what == "computation" and disturbed(run):
        return "others computed on the node meanwhile, as the verdict `shared node` says: that comes first"
    if what == "computation" and measure.gc == "python":
        return COLLECTING
    return ADVICE.get(what, OTHERWISE)
