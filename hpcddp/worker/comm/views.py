"""Three views of what the exchange of gradients costs a step, and whether they agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from hpcddp.core.attempt_records import CommCheck
from hpcddp.worker.comm.trace import ProfiledStep

NEAR = 0.10
"""Views agree when they are this share of the larger one apart, or"""

SMALL = 0.02
"""this share of the step."""

DISTURBED = 1.15
"""A step whose computing took this many times the usual, measured by the processor time it used, was held up by others."""


class Timed(NamedTuple):
    """Forward, backward and exchange of one step on one rank, by the step clock."""

    total_s: float
    exposed_s: float
    computing_s: float
    cpu_s: float | None
    """Processor time of the thread that computed; None where a GPU did."""


class Pair(NamedTuple):
    """The same batch with and without exchange, one after the other."""

    sync: Timed
    no_sync: Timed


class Profiled(NamedTuple):
    """A pair that ran under the profiler, and what the profiler saw of it."""

    timed: Pair
    sync: ProfiledStep
    no_sync: ProfiledStep


class Medians(NamedTuple):
    """Over the pairs of one rank, in seconds, as CommCheck has them."""

    sync_step_s: float
    no_sync_step_s: float
    difference_s: float
    difference_interval_s: tuple[float, float]
    hook_exposed_s: float
    profiled_difference_s: float
    profiled_hook_exposed_s: float
    profiler_exposed_s: float
    contention_s: float
    residual_s: float


def compare(pairs: Sequence[Pair], profiled: Sequence[Profiled]) -> CommCheck:
    """One rank's record.

    With exchange a step is longer by contention (the growth of backward's operators, copies into buckets among them) and by the
    exposed tail. Difference, contention and tail have sources of their own (two steps by the step clock, operators by the
    profiler, the end of one step by the step clock), so that the sum is no identity. It is formed pair by pair over the profiled
    pairs: what holds a step up from outside lengthens its operators too. Pairs without the profiler say what steps really take;
    their difference is known as well as its median's interval says.
    """
    plain = [pairs[number] for number in undisturbed(pairs)]
    watched = [profiled[number] for number in undisturbed([step.timed for step in profiled])]
    found = _medians(plain, watched)
    apart = _disagreements(found)
    return CommCheck(
        pairs=len(pairs),
        discarded=len(pairs) - len(plain),
        profiled_pairs=len(watched),
        closes=not apart,
        sentence=_sentence(found, apart),
        **found._asdict(),
    )


def _medians(plain: Sequence[Pair], watched: Sequence[Profiled]) -> Medians:
    differences_s = sorted(_difference_s(pair) for pair in plain)
    return Medians(
        sync_step_s=median(pair.sync.total_s for pair in plain),
        no_sync_step_s=median(pair.no_sync.total_s for pair in plain),
        difference_s=median(differences_s),
        difference_interval_s=_interval(differences_s),
        hook_exposed_s=median(pair.sync.exposed_s for pair in plain),
        profiled_difference_s=median(_difference_s(step.timed) for step in watched),
        profiled_hook_exposed_s=median(step.timed.sync.exposed_s for step in watched),
        profiler_exposed_s=median(step.sync.exposed_s for step in watched),
        contention_s=median(_contention_s(step) for step in watched),
        residual_s=median(_difference_s(step.timed) - _contention_s(step) - step.timed.sync.exposed_s for step in watched),
    )


def _difference_s(pair: Pair) -> float:
    return pair.sync.total_s - pair.no_sync.total_s


def _contention_s(step: Profiled) -> float:
    return step.sync.backward_s - step.no_sync.backward_s


def _interval(ordered: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median, by order statistics (Le Boudec 2010, chapter 2); of few values their range."""
    below = max(0, math.floor(len(ordered) / 2 - 0.98 * math.sqrt(len(ordered))))
    return ordered[below], ordered[-1 - below]


def undisturbed(pairs: Sequence[Pair]) -> list[int]:
    """Numbers of the pairs without a step that others held up; all of them where that would leave none."""
    limits = [DISTURBED * median(_ratio(pair[kind]) for pair in pairs) for kind in (0, 1)]
    plain = [number for number, pair in enumerate(pairs) if all(_ratio(pair[kind]) <= limits[kind] for kind in (0, 1))]
    return plain or list(range(len(pairs)))


def blind() -> CommCheck:
    """The record of a rank whose profiler saw nothing of its GPU: a view is missing, and the others are not compared."""
    why = "torch's profiler saw no kernel of the GPU; the driver may not let this user profile (CUPTI)"
    return CommCheck(closes=False, sentence=f"the views of the exchange cannot be compared: {why}")


def worst(records: Sequence[CommCheck]) -> CommCheck:
    """The record of the rank that closes least, so that where it closes, every rank's does."""

    def openness(rank: int) -> tuple[bool, float]:
        residual_s = records[rank].residual_s
        return not records[rank].closes, math.inf if residual_s is None else abs(residual_s)

    rank = max(range(len(records)), key=openness)
    return replace(records[rank], rank=rank)


def _ratio(step: Timed) -> float:
    return step.computing_s / step.cpu_s if step.cpu_s else 1.0


def _disagreements(found: Medians) -> list[str]:
    """What does not fit, in words: the sum within pairs, the two tails of the same steps, profiled and plain steps."""
    small_s = SMALL * found.sync_step_s

    def apart(a: float, b: float) -> bool:
        return bool(abs(a - b) > max(NEAR * max(abs(a), abs(b)), small_s))

    difference_s, left_s = found.profiled_difference_s, found.residual_s
    low_s, high_s = found.difference_interval_s
    sums_s = found.contention_s + found.hook_exposed_s
    checks = [
        (difference_s, difference_s - left_s, "the difference is {}, contention and exposed tail {}"),
        (
            found.profiler_exposed_s,
            found.profiled_hook_exposed_s,
            "the profiler's tail is {}, the step clock's of the same steps {}",
        ),
        (min(max(sums_s, low_s), high_s), sums_s, "without the profiler the difference is {} at the nearest, with it {}"),
    ]
    return [words.format(_ms(a), _ms(b)) for a, b, words in checks if apart(a, b)]


def _sentence(found: Medians, apart: list[str]) -> str:
    if apart:
        return f"the views of the exchange do not agree: {'; '.join(apart)}: do not rely on this run's breakdown"
    return (
        f"the views agree: with exchange a step takes {_ms(found.difference_s)} longer, by contention "
        f"{_ms(found.contention_s)} and an exposed tail of {_ms(found.hook_exposed_s)} "
        f"(of profiled steps {_ms(found.profiled_hook_exposed_s)}, by the profiler {_ms(found.profiler_exposed_s)})"
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
