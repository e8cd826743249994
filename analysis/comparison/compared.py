"""What two studies measured alike, side by side: accuracy, the time to one, readings, and what a key changes.

Compared where both sides can be, otherwise not at all, with the reason.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from fractions import Fraction
from typing import Any

import pandas as pd

from hpcddp.analysis.comparison.match import MeasuredPoint
from hpcddp.analysis.records.epochs import Epoch
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.accuracy import GIVEN, Evaluated, Gap, gap, reached, same_training, target_of
from hpcddp.analysis.study.axes import Axis, AxisPanel, axes
from hpcddp.analysis.study.axis_words import judged_axes
from hpcddp.analysis.study.effects import Ratio, ratio
from hpcddp.analysis.study.load import StudyRecords
from hpcddp.analysis.study.scaling import scaling_frame
from hpcddp.analysis.util.wording import effort, percent, quantity
from hpcddp.analysis.verdicts.accuracy import gap_words
from hpcddp.core.text import count


@dataclass(frozen=True)
class Compared:
    """What both sides have, as compare.json has it, and what B's is to A's: `what` says whether a ratio or a difference."""

    what: str
    a: Mapping[str, Any] | None
    b: Mapping[str, Any] | None
    ratio: Ratio | Gap | None
    why_not: str | None
    """Why there is none."""
    text: str
    """What the terminal says; empty where that is nothing."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What else compare.json has of it."""

    @property
    def plain(self) -> dict[str, Any]:
        """For compare.json."""
        value, low, high, kind = astuple(self.ratio) if self.ratio else (None,) * 4
        ends = {"low": low, "high": high, "interval": kind, "why_not": self.why_not}
        return {**self.about, "a": self.a, "b": self.b, self.what: value, **ends}


def ends_words(of: Ratio, digits: int = 3, dash: str = "-", *, kind: bool = True) -> str:
    """` (95 % 0.912-0.934)`, without its kind ` (0.912-0.934)`; nothing of one run against one."""
    if of.kind is None:
        return ""
    return f" ({f'{of.kind} ' if kind else ''}{of.low:.{digits}f}{dash}{of.high:.{digits}f})"


def compared_accuracy(a: MeasuredPoint, b: MeasuredPoint) -> Compared | None:
    """None where neither side was evaluated. Trainings that end at unlike samples are compared at the last that both had.

    `97.22 % (9,722 of 10,000) -> 97.31 % (9,731 of 10,000), no difference found (...), each after 640,000 samples`
    """
    mine, theirs = a.evaluated, b.evaluated
    if mine is None and theirs is None:
        return None
    common = [at for at in a.evaluated_at if at in b.evaluated_at and a.evaluated_at[at].samples == b.evaluated_at[at].samples]
    alike = mine is not None and theirs is not None and same_training(mine, theirs)
    before_end = bool(common) and not alike
    if before_end:
        mine, theirs = a.evaluated_at[max(common)], b.evaluated_at[max(common)]
    loss_a, loss_b = (None, None) if before_end else (a.losses, b.losses)
    sides = _accuracy_side(mine, loss_a), _accuracy_side(theirs, loss_b)
    if mine is None or theirs is None or not (alike or before_end):
        why_not = _not_evaluated_alike(mine, theirs)
        return Compared("difference", *sides, None, why_not, f"not compared: {why_not}")
    found = gap(theirs.shares, mine.shares)
    when = ", the last at which all were evaluated" if before_end else _losses(a, b)
    words = f"{mine.words} -> {theirs.words}, {gap_words(found) or 'one run each'}"
    return Compared("difference", *sides, found, None, f"{words}, each after {_trained(mine)}{when}")


def _not_evaluated_alike(mine: Evaluated | None, theirs: Evaluated | None) -> str:
    if mine is None or theirs is None:
        return f"only {'B' if mine is None else 'A'} has runs that were evaluated, on one evaluation set"
    if mine.samples != theirs.samples:
        return f"A was evaluated on {mine.samples:,} samples, B on {theirs.samples:,}"
    return f"A trained {_trained(mine)}, B {_trained(theirs)}; only equal amounts are compared"


def _losses(a: MeasuredPoint, b: MeasuredPoint) -> str:
    """`; training loss 2.30 to 0.081 -> 2.30 to 0.079 (first and last 10 steps)`, where both sides have it over as many steps."""
    if a.losses is None or b.losses is None or a.losses[2] != b.losses[2]:
        return ""
    mine, theirs = (f"{quantity(start)} to {quantity(end)}" for start, end, _ in (a.losses, b.losses))
    steps = a.losses[2]
    return f"; training loss {mine} -> {theirs} (first and last {'step' if steps == 1 else f'{steps} steps'})"


def _accuracy_side(found: Evaluated | None, losses: tuple[float, float, int] | None) -> dict[str, Any] | None:
    if found is None:
        return None
    start, end, steps = losses or (None, None, None)
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


def compared_time(a: MeasuredPoint, b: MeasuredPoint) -> Compared | None:
    """Time to an accuracy, at one target that all runs of both reached; None where neither side trained whole epochs.

    `93.00 % after 57.2 s (12 epochs) -> 50.1 s (12 epochs): B is there 1.142 times as fast (95 % 1.101-1.213)`
    """
    if not a.trainings and not b.trainings:
        return None
    target, of = target_of([*a.trainings, *b.trainings])
    about = {"target": None if target is None else float(target), "target_of": of}
    why_not = _no_target_of_both(a.trainings, b.trainings, target)
    if target is None or why_not:
        return Compared("ratio", None, None, None, why_not, f"not compared: {why_not}", about)
    share = f"{float(100 * target):.2f} %"
    ends = [[reached(run.epochs or (), target) for run in each.trainings] for each in (a, b)]
    times_a, times_b = ([Fraction(end.train_ns, 10**9) for end in each if end is not None] for each in ends)
    mine, theirs = (_time_side(each) for each in ends)
    if None in ends[0] or None in ends[1]:
        parts = (f"{side['reached']} of {count(side['n'], 'run')} of {name}" for name, side in (("A", mine), ("B", theirs)))
        why_not = f"{' and '.join(parts)} reached {share}"
        return Compared("ratio", mine, theirs, None, why_not, f"not compared: {why_not}", about)
    found = ratio(times_a, times_b)
    took_a, took_b = (effort(each["train_s"], each["epochs"]) for each in (mine, theirs))
    which = "" if of == GIVEN else f", {of},"
    text = f"{share}{which} after {took_a} -> {took_b}: B is there {found.ratio:.3f} times as fast{ends_words(found)}"
    return Compared("ratio", mine, theirs, found, None, text, about)


def _no_target_of_both(mine: Sequence[Run], theirs: Sequence[Run], target: Fraction | None) -> str | None:
    if not mine or not theirs:
        return f"only {'B' if theirs else 'A'} has runs of whole epochs"
    if target is None:
        return "some runs were never evaluated"
    sets = [sorted({each.total for run in runs for each in run.epochs or () if each.total}) for runs in (mine, theirs)]
    if sets[0] != sets[1]:
        a, b = (" or ".join(f"{size:,}" for size in sizes) for sizes in sets)
        return f"A was evaluated on {a} samples, B on {b}"
    return None


def _time_side(ends: Sequence[Epoch | None]) -> dict[str, Any]:
    """Medians of training alone, without evaluations, where all runs reached the target; `ends`: each run's epoch in which it
    did."""
    there = [end for end in ends if end is not None]
    known = len(there) == len(ends)
    return {
        "n": len(ends),
        "reached": len(there),
        "train_s": float(statistics.median(Fraction(end.train_ns, 10**9) for end in there)) if known else None,
        "epochs": float(statistics.median(end.epoch for end in there)) if known else None,
    }


AT_LEAST = 0.10
"""Share of A's value from which on another reading of B is named; below it, equal runs on other nodes differ too: convention."""

READINGS: dict[str, tuple[str, Callable[[float], str], float]] = {
    "gpu_util_percent": ("GPU utilisation", lambda value: f"{value:.0f} %", 5.0),
    "gpu_power_w_mean": ("power per GPU", lambda value: f"{quantity(value)} W", 5.0),
    "gpu_sm_mhz_median": ("SM clock", lambda value: f"{value:.0f} MHz", 15.0),
    "gpu_mem_used_peak_bytes": ("GPU memory", lambda value: f"{quantity(value / 1e9)} GB", 1e8),
    "energy_j_per_1000_samples": ("energy of 1000 samples", lambda value: f"{quantity(value)} J", 0.0),
    "cpu_job_share": ("CPUs busy with the job", percent, 0.05),
    "cpu_foreign_share": ("CPUs busy with others", percent, 0.05),
}
"""Readings that the text names where they differ, with the difference below which it does not; the JSON has all."""


def differing_readings(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    """`power per GPU 250 W -> 310 W`, of figures that both sides have and that differ."""
    for name, (head, text, least) in READINGS.items():
        mine, other = a.get(name), b.get(name)
        if mine is not None and other is not None and abs(other - mine) >= max(AT_LEAST * abs(mine), least) and other != mine:
            yield f"{head} {text(mine)} -> {text(other)}"


def compared_effects(a: tuple[StudyRecords, pd.DataFrame], b: tuple[StudyRecords, pd.DataFrame]) -> list[Compared]:
    """How many times as fast training is with a value of a key as with the base, of keys that both studies varied, at sizes that
    both measured; the base is A's. Each study with its runs_frame. Those that do not differ have no text."""
    theirs = {(axis.key, panel.where): panel for axis in _axes(*b) for panel in axis.panels}
    pairs = [(axis, panel, theirs.get((axis.key, panel.where))) for axis in _axes(*a) for panel in axis.panels]
    return [effect for axis, mine, other in pairs if other is not None for effect in _of_panel(axis, mine, other)]


def _axes(records: StudyRecords, runs: pd.DataFrame) -> list[Axis]:
    return judged_axes(axes(runs, scaling_frame(runs, records.points, records.hold)))


def _of_panel(axis: Axis, a: AxisPanel, b: AxisPanel) -> Iterator[Compared]:
    """`at 1x4, precision fp16 is 1.26 (95 % 1.21-1.30) -> 1.04 (95 % 1.01-1.08) times as fast as fp32`"""
    theirs = {value.text: value for value in b.values}
    base = a.values[a.base].text
    for value in a.values:
        mine = a.against_base(value)
        if mine is None or value.text not in theirs or base not in theirs:
            continue
        other = b.compared(theirs[value.text], theirs[base])
        words, other_words = (f"{each.ratio:.2f}{ends_words(each, 2)}" for each in (mine, other))
        text = f"at {a.where}, {axis.name} {value.text} is {words} -> {other_words} times as fast as {base}"
        about = {"key": axis.key, "where": a.where, "value": value.text, "base": base}
        yield Compared("ratio", vars(mine), vars(other), None, None, text if _apart(mine, other) else "", about)


def _apart(a: Ratio, b: Ratio) -> bool:
    """Whether the intervals, or with few runs the ranges, have nothing in common; a single run shows no difference."""
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return False
    return a.high < b.low or b.high < a.low
