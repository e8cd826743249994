"""What a key changes in two studies: the same value against the same base in both, where both measured it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from hpcddp.analysis.study.axes import Axis, AxisPanel, axes
from hpcddp.analysis.study.axis_judgement import judged_axes
from hpcddp.analysis.study.effects import Ratio
from hpcddp.analysis.study.load import StudyRecords
from hpcddp.analysis.study.scaling import scaling_frame


@dataclass(frozen=True, kw_only=True)
class ComparedEffect:
    """How many times as fast training is with a value as with the base, in A and in B."""

    key: str
    name: str
    where: str
    """`1x4`, `1x4, batch/GPU 64`"""
    value: str
    base: str
    a: Ratio
    b: Ratio

    @property
    def differs(self) -> bool:
        """Whether the intervals, or with few runs the ranges, have nothing in common; a single run shows no difference."""
        if self.a.low is None or self.a.high is None or self.b.low is None or self.b.high is None:
            return False
        return self.a.high < self.b.low or self.b.high < self.a.low


def compared_effects(a: tuple[StudyRecords, pd.DataFrame], b: tuple[StudyRecords, pd.DataFrame]) -> list[ComparedEffect]:
    """Of keys that both studies varied, at sizes that both measured; the base is A's. Each study with its runs_frame."""
    theirs = {(axis.key, panel.where): panel for axis in _axes(*b) for panel in axis.panels}
    pairs = [(axis, panel, theirs.get((axis.key, panel.where))) for axis in _axes(*a) for panel in axis.panels]
    return [effect for axis, mine, other in pairs if other is not None for effect in _of_panel(axis, mine, other)]


def _axes(records: StudyRecords, runs: pd.DataFrame) -> list[Axis]:
    return judged_axes(axes(runs, scaling_frame(runs, records.points, records.hold)))


def _of_panel(axis: Axis, a: AxisPanel, b: AxisPanel) -> Iterator[ComparedEffect]:
    theirs = {value.text: value for value in b.values}
    base = a.values[a.base].text
    for value in a.values:
        mine = a.against_base(value)
        if mine is not None and value.text in theirs and base in theirs:
            yield ComparedEffect(
                key=axis.key,
                name=axis.name,
                where=a.where,
                value=value.text,
                base=base,
                a=mine,
                b=b.compared(theirs[value.text], theirs[base]),
            )


def effect_texts(found: Sequence[ComparedEffect]) -> list[str]:
    """`at 1x4, precision fp16 is 1.26 (95 % 1.21-1.30) -> 1.04 (95 % 1.01-1.08) times as fast as fp32`, of those that differ."""
    return [
        f"at {each.where}, {each.name} {each.value} is {_words(each.a)} -> {_words(each.b)} times as fast as {each.base}"
        for each in found
        if each.differs
    ]


def _words(of: Ratio) -> str:
    return f"{of.ratio:.2f} ({of.kind} {of.low:.2f}-{of.high:.2f})"


def plain_effects(found: Sequence[ComparedEffect]) -> list[dict[str, Any]]:
    """For compare.json, those that do not differ too."""
    return [
        {
            "key": each.key,
            "where": each.where,
            "value": each.value,
            "base": each.base,
            "a": vars(each.a),
            "b": vars(each.b),
            "differs": each.differs,
        }
        for each in found
    ]
