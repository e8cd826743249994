"""How far a study that was run again agrees with the first, in two lines."""

from __future__ import annotations

from collections.abc import Sequence

from hpcddp.analysis.comparison.compare import ComparedPoint, Comparison, Judgement
from hpcddp.analysis.comparison.text import names, share
from hpcddp.core.text import count, first_few

BEYOND: tuple[Judgement, ...] = ("slower", "faster")


def agreement_text(found: Comparison) -> str:
    """How many points train as fast as before within the threshold, and how far the curves differ in shape: another machine may
    be faster and scale the same.
    """
    called = dict(zip(map(id, found.points), names(found), strict=True))
    beyond = [point for point in found.points if point.judgement in BEYOND]
    unclear = [point for point in found.points if point.judgement == "unclear"]
    within = len(found.points) - len(beyond) - len(unclear)
    parts = [f"B trains as fast as A within {share(found.threshold)} at {within} of {count(len(found.points), 'point')}"]
    parts += [f"beyond it at {_named(beyond, called)}"] if beyond else []
    parts += [f"open at {_named(unclear, called)}: more runs would decide"] if unclear else []
    return "\n".join([f"agreement  {'; '.join(parts)}.", *_shape(found)])


def _named(points: Sequence[ComparedPoint], called: dict[int, str]) -> str:
    listed = first_few([f"{called[id(point)]} ({point.ratio.ratio:.3f})" for point in points])
    return f"{len(points)}: {listed}"


def _shape(found: Comparison) -> list[str]:
    if len(found.points) < 2:
        return []
    ratios = [point.ratio.ratio for point in found.points]
    low, high = min(ratios), max(ratios)
    apart = f"{100 * (high / low - 1):.1f} %"
    return [f"shape      B / A lies between {low:.3f} and {high:.3f}: the scaling curves of both differ by {apart}."]
