"""Accuracy of two studies' points: compared where both trained equally many samples, otherwise not at all, with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hpcddp.analysis.comparison.match import MeasuredPoint
from hpcddp.analysis.study.accuracy import Evaluated, Gap, gap, same_training
from hpcddp.analysis.util.wording import quantity
from hpcddp.analysis.verdicts.accuracy import gap_words


@dataclass(frozen=True)
class ComparedAccuracy:
    """Either the gap of B's accuracy over A's with what it is between, or why there is none."""

    a: Evaluated | None
    b: Evaluated | None
    gap: Gap | None
    why_not: str | None
    at_end: bool = True
    """Otherwise they are of an epoch before the end of a training."""


def compared_accuracy(a: MeasuredPoint, b: MeasuredPoint) -> ComparedAccuracy | None:
    """None where neither side was evaluated. Trainings that end at unlike samples are compared at the last that both had."""
    mine, theirs = a.evaluated, b.evaluated
    if mine is None and theirs is None:
        return None
    common = [at for at in a.evaluated_at if at in b.evaluated_at and a.evaluated_at[at].samples == b.evaluated_at[at].samples]
    if mine is not None and theirs is not None and same_training(mine, theirs):
        return ComparedAccuracy(mine, theirs, gap(theirs.shares, mine.shares), None)
    if common:
        mine, theirs = a.evaluated_at[max(common)], b.evaluated_at[max(common)]
        return ComparedAccuracy(mine, theirs, gap(theirs.shares, mine.shares), None, at_end=False)
    return ComparedAccuracy(mine, theirs, None, _why_not(mine, theirs))


def _why_not(mine: Evaluated | None, theirs: Evaluated | None) -> str:
    if mine is None or theirs is None:
        return f"only {'B' if mine is None else 'A'} has runs that were evaluated, on one evaluation set"
    if mine.samples != theirs.samples:
        return f"A was evaluated on {mine.samples:,} samples, B on {theirs.samples:,}"
    return f"A trained {_trained(mine)}, B {_trained(theirs)}; only equal amounts are compared"


def accuracy_text(a: MeasuredPoint, b: MeasuredPoint, found: ComparedAccuracy) -> str:
    """`97.22 % (9,722 of 10,000) -> 97.31 % (9,731 of 10,000), no difference found (...), each after 640,000 samples`"""
    if found.gap is None or found.a is None or found.b is None:
        return f"not compared: {found.why_not}"
    words = f"{found.a.words} -> {found.b.words}, {gap_words(found.gap) or 'one run each'}"
    return f"{words}, each after {_trained(found.a)}{_losses(a, b) if found.at_end else ', the last at which all were evaluated'}"


def _losses(a: MeasuredPoint, b: MeasuredPoint) -> str:
    """`; training loss 2.30 to 0.081 -> 2.30 to 0.079 (first and last 10 steps)`, where both sides have it over as many steps."""
    if a.losses is None or b.losses is None or a.losses[2] != b.losses[2]:
        return ""
    mine, theirs = (f"{quantity(start)} to {quantity(end)}" for start, end, _ in (a.losses, b.losses))
    steps = a.losses[2]
    return f"; training loss {mine} -> {theirs} (first and last {'step' if steps == 1 else f'{steps} steps'})"


def accuracy_plain(a: MeasuredPoint, b: MeasuredPoint) -> dict[str, Any] | None:
    """For compare.json."""
    found = compared_accuracy(a, b)
    if found is None:
        return None
    gap_ = found.gap
    return {
        "a": _side(found.a, a if found.at_end else None),
        "b": _side(found.b, b if found.at_end else None),
        "difference": gap_.gap if gap_ else None,
        "low": gap_.low if gap_ else None,
        "high": gap_.high if gap_ else None,
        "interval": gap_.kind if gap_ else None,
        "why_not": found.why_not,
    }


def _side(found: Evaluated | None, ended: MeasuredPoint | None) -> dict[str, Any] | None:
    """`ended`: the point where the accuracies are of the end of its runs, as its losses are."""
    if found is None:
        return None
    start, end, steps = (ended.losses if ended else None) or (None, None, None)
    return {
        "accuracy": float(found.share),
        "correct": float(found.share * found.samples),
        "samples": found.samples,
        "n": len(found.shares),
        "samples_trained": sorted({each for each in found.trained if each is not None}),
        "loss_start": start,
        "loss_end": end,
        "loss_steps": steps,
    }


def _trained(found: Evaluated) -> str:
    """`640,000 samples`, `640,000 to 650,000 samples`, `an unknown number of samples`"""
    known = sorted({each for each in found.trained if each is not None})
    if not known or None in found.trained:
        return "an unknown number of samples"
    return f"{known[0]:,} samples" if len(known) == 1 else f"{known[0]:,} to {known[-1]:,} samples"
