"""Steps that are too few, not yet steady, of two kinds, or stall: much longer ones return, or the mean is far from the median."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.runs.signals import Rhythm
from hpcddp.analysis.runs.step_times import Stalls
from hpcddp.analysis.util.wording import capital, more_runs, percent, quantity
from hpcddp.analysis.verdicts import context
from hpcddp.analysis.verdicts.comm import NOT_SPLIT, comm_share
from hpcddp.analysis.verdicts.context import DOUBTFUL, LIMITED, Advice, Case, PointRow, Set, Verdict, phrase
from hpcddp.analysis.verdicts.gates import disturbed_by_others
from hpcddp.analysis.verdicts.input import input_advice, input_share
from hpcddp.core.text import count

FEW_STEPS = 20
"""Timed steps below which the interval of a run's mean is not known."""

WIDE_PERCENT = 2.0
"""Half the 95 % interval of a run's mean step: the default of measure.interval_percent."""

TOO_MANY = 50
"""Times the steps there are, beyond which more steps are not advised: a run of minutes would take hours."""

MOVED = 0.01
"""Share of the mean step that steps of the warm-up may add to it: half of what its interval may be."""

EARLY_SLOWER = 0.10
"""Share by which steps of the warm-up may be slower: beyond the noise of steps, however few they are."""

TWO_KINDS = 0.85
"""Rhythm.apart of steps of two kinds; normal noise has 0.64, uniform 0.75."""

APART = 0.10
"""Share by which the slow kind is slower at least."""

EACH_KIND = 0.10
"""Share of the steps that each kind has at least; fewer slow ones are spikes, which are stalls."""

FIRST_SLOW = 0.2
"""Rhythm.slow_later below which slow steps come first: that is a warm-up."""

SUSTAINED = phrase(
    "Time the sustained rate, after a warm-up that uses up the burst, with ",
    Set({"measure.warmup_steps": 500, "measure.stop": "seconds", "measure.seconds": 120}),
    ". Ask the site for the guaranteed bandwidth.",
)

EXPLAINED = 0.5
"""Share of the difference between slow and fast steps from which on a part explains it."""


def too_few_steps(case: Case) -> Iterator[Verdict]:
    """Runs whose mean step is not known well, point by point."""
    for found in context.found_points(case, lambda _, row: _wide(case.runs_of(row)) or None):
        runs = [run for wide in found.values for run in wide]
        worst = max(runs, key=lambda run: (run.step_ci_percent or math.inf, run.name))
        steps, interval = worst.steady_steps or 0, worst.step_ci_percent
        wide = "an unknown 95 % CI" if interval is None else f"a 95 % CI half-width of {interval:.1f} %"
        wanted = "" if interval is None else f"; at most {WIDE_PERCENT:.0f} % is needed"
        others = more_runs(len(runs), " The same holds for {}.")
        yield found.verdict(
            evidence=f"The mean step of {worst.name} has {wide} after {count(steps, 'timed step')}{wanted}.{others}",
            todo=_steps_advice(worst),
            numbers={"steps": steps, **({} if interval is None else {"interval_percent": interval})},
            runs=runs,
            weight=DOUBTFUL + min(0.99, (interval or 50) / 100),
        )


def _wide(runs: list[Run]) -> list[Run]:
    """Those of a point whose means are not known, where most are not: one alone is an outlier. Not where steps are of two kinds,
    begin too early, or stall so much that too many more were needed: these have other verdicts."""
    wide = [run for run in runs if (run.steady_steps or 0) < FEW_STEPS or (run.step_ci_percent or 0) > WIDE_PERCENT]
    hopeless = [run for run in wide if run.stalls and _times_more(run) > TOO_MANY]
    helped = [run for run in wide if not begins_slowly(run) and not _bursts(run) and run not in hopeless]
    return helped if 2 * len(helped) > len(runs) else []


def _times_more(run: Run) -> float:
    """Steps that would suffice / steps there are: an interval is as wide as 1 / sqrt(steps)."""
    return max(1.0, (run.step_ci_percent or 0) / WIDE_PERCENT) ** 2


def _steps_advice(run: Run) -> Advice:
    """The number of steps that would suffice, or what to do where that is too many."""
    more, until_known = _times_more(run), Set({"measure.stop": "interval"})
    if more > TOO_MANY:
        return phrase("Find what disturbs the steps, then use ", until_known, ". Step times vary too much for more steps.")
    steps = (run.steady_steps or 1) * more
    digit = 10 ** max(1, math.floor(math.log10(steps)) - 1)
    enough = max(100, math.ceil(steps / digit) * digit)
    if run.epochs:
        epochs = Set({"measure.epochs": 1 + math.ceil(enough * len(run.epochs) / run.epochs[-1].step)})
        return phrase("Train more epochs with ", epochs, ".")
    return phrase("Time more steps with ", Set({"measure.steps": enough}), ", or until the mean is known with ", until_known, ".")


def warmup_inside(case: Case) -> Iterator[Verdict]:
    """The timed steps include some of the warm-up, by the run itself or by their length, and these are slower."""
    runs = [run for run in case.counting if begins_slowly(run)]
    if runs:
        worst = max(runs, key=lambda run: (run.early.moved if run.early else 0, run.name))
        assert worst.early is not None
        timed = [(run.point.measure.warmup_steps if run.point else 0) + (run.early.steps if run.early else 0) for run in runs]
        needed = max(*timed, *(run.warmup_detected_steps or 0 for run in runs))
        longer, detect = Set({"measure.warmup_steps": 50 * math.ceil(needed / 50)}), Set({"measure.warmup": "detect"})
        yield Verdict(
            where=f"in {len(runs)} of {len(case.counting)} runs",
            evidence=f"Run {worst.name} begins with {count(worst.early.steps, 'timed step')} that "
            f"{'is' if worst.early.steps == 1 else 'are'} {percent(worst.early.slower)} slower than later ones. This raises the "
            f"mean step by {100 * worst.early.moved:.1f} %.",
            todo=phrase("Lengthen the warm-up with ", longer, ", or detect its end with ", detect, "."),
            numbers={"slower": worst.early.slower, "moved": worst.early.moved, "warmup_steps_needed": needed},
            runs=context.run_names(runs),
            weight=DOUBTFUL + min(0.99, max(worst.early.moved, 0)),
        )


def begins_slowly(run: Run) -> bool:
    """Whether steps of the warm-up were timed, and cost something."""
    return run.early is not None and (run.early.moved > MOVED or run.early.slower > EARLY_SLOWER)


def burst_network(case: Case) -> Iterator[Verdict]:
    """Between nodes, some steps are fast as long as the network lets a burst pass: a token bucket."""
    runs = [run for run in case.counting if bursts(case, run)]
    if not runs:
        return
    worst = max(runs, key=lambda run: (run.rhythm.slow_ns / run.rhythm.fast_ns if run.rhythm else 0, run.name))
    rhythm = worst.rhythm
    assert rhythm is not None
    slower = rhythm.slow_ns / rhythm.fast_ns - 1
    fast, slow = quantity(rhythm.fast_ns / 1e6), quantity(rhythm.slow_ns / 1e6)
    order = "Fast steps precede slow steps." if rhythm.slow_later > 1 - FIRST_SLOW else "Fast and slow steps alternate."
    yield Verdict(
        where=f"in {len(runs)} of {len(case.counting)} runs",
        evidence=f"Step times of {worst.name} are bimodal: {percent(1 - rhythm.slow_share)} of them last {fast} ms and "
        f"{percent(rhythm.slow_share)} last {slow} ms. {order} A burst-limited network shows this pattern.",
        todo=SUSTAINED,
        numbers={"slower": slower, "slow_share": rhythm.slow_share, "apart": rhythm.apart},
        runs=context.run_names(runs),
        weight=DOUBTFUL + min(0.99, slower),
    )


def bursts(case: Case, run: Run) -> bool:
    """Whether the run's steps show a network that is faster in bursts."""
    return _bursts(run) and not _also_on_one_node(case, run)


def _bursts(run: Run) -> bool:
    """Steps of two kinds on several nodes that neither data nor a warm-up explains, but communication where it was measured."""
    found = run.rhythm
    if found is None or not _two_kinds(found) or run.point is None or run.point.layout.nodes < 2:
        return False
    if run.point.sharded and "comm_exposed" not in found.of_part:
        return False  # forward and backward have waits for parameters in them: nobody knows what is longer
    by_data, by_comm = found.of_part.get("data_wait", 0), found.of_part.get("comm_exposed", 1)
    return found.slow_later >= FIRST_SLOW and by_data < EXPLAINED <= by_comm


def _also_on_one_node(case: Case, run: Run) -> bool:
    """Whether steps on one node are of two kinds as well, where nobody measured what makes them: then it is not the network."""
    if run.rhythm is None or "comm_exposed" in run.rhythm.of_part:
        return False
    inside = [other.rhythm for other in case.counting if other.rhythm and other.point and other.point.layout.nodes == 1]
    return any(_two_kinds(rhythm) for rhythm in inside)


def _two_kinds(found: Rhythm) -> bool:
    apart = found.apart >= TWO_KINDS and found.slow_ns >= (1 + APART) * found.fast_ns
    return apart and EACH_KIND <= found.slow_share <= 1 - EACH_KIND


MOST_AFTER_PAUSES = 0.5
"""Of the long steps, from which on checkpoints are what they come from."""

LONG_IN = {
    "data": "waiting for data",
    "communication": "communication",
    "records": "writing records",
    "computation": "computation",
    "checkpoint": "The long steps are the first after a checkpoint.",
    "unmarked": "The long steps are longer in forward and backward, where waits for sharded parameters are not marked.",
    "unknown": "The long steps are longer in parts that were not measured.",
}
"""Cause -> a part of the step in words, or a sentence."""

ADVICE: Mapping[str, Advice] = {
    "communication": "Look in the figures of ranks and of one step for a rank that is sometimes late, or for other traffic.",
    "records": "Submit with `--runs` on another file system. Writing step records waits for the one that holds the runs.",
    "unmarked": phrase("Mark waits for sharded parameters and gradients with ", Set({"measure.comm": "on"}), "."),
}
OTHERWISE = "check other processes on the node, its clocks, and work that the model does in some steps only."
COLLECTING = phrase(
    "Exclude older objects from Python's garbage collection, which may cause the long steps, with ",
    Set({"measure.gc": "frozen"}),
    f". If stalls remain, {OTHERWISE}",
)


def stalling_points(case: Case) -> Iterator[Verdict]:
    """Points of which most runs stall: a verdict per series and cause."""
    for name, series in case.series:
        found = [(row, run) for _, row in series.iterrows() if (run := stalling(case, row))]
        for what in dict.fromkeys(cause_of_long_steps(run) for _, run in found):
            mine = [(row, run) for row, run in found if cause_of_long_steps(run) == what]
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
    other = others.get(cause_of_long_steps(run))
    return None if other and other(case, row) is not None else lost_share(run)


def cause_of_long_steps(run: Run) -> str:
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
    assert worst.stalls is not None
    return Verdict(
        where=context.where(rows, series, name),
        evidence=f"{_words(worst, worst.stalls, what)}{more_runs(len(runs), ' The same holds for {}.')}",
        todo=_advice(case, series, rows, worst, what),
        numbers={
            "mean_by_median": worst.stalls.mean_ns / worst.stalls.median_ns,
            "long_share": worst.stalls.long_share,
            "long_by_other": worst.stalls.long_ns / worst.stalls.other_ns,
            **{f"of_{cause}": share for cause, share in worst.stalls.of.items()},
        },
        runs=context.run_names(runs),
        weight=LIMITED + min(0.99, max(0.0, lost_share(worst))),
    )


def _words(run: Run, found: Stalls, what: str) -> str:
    mean, median, long, other = (quantity(ns / 1e6) for ns in (found.mean_ns, found.median_ns, found.long_ns, found.other_ns))
    explained = f" accounts for {percent(found.of[what])} of the difference." if what in found.of else ""
    return (
        f"Run {run.name} has a mean step of {mean} ms and a median of {median} ms. {100 * found.long_share:.2g} % of its steps "
        f"last {long} ms, the others {other} ms. {capital(LONG_IN[what]) if explained else LONG_IN[what]}{explained}"
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
        return phrase("Write fewer checkpoints with ", rarer, ", or use a faster file system. They slow the steps after them.")
    if what == "computation" and disturbed_by_others(run):
        return "Resolve the verdict `shared node` first. Processes outside the job used this node's CPUs during the run."
    if what == "computation" and measure.gc == "python":
        return COLLECTING
    return ADVICE.get(what, capital(OTHERWISE))
