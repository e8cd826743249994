"""What of the effects of keys is more than chance: all comparisons of a study, and how keys depend on each other, are judged
together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, permutations

from hpcddp.analysis.study.axes import Axis, AxisPanel, AxisValue, axis_text
from hpcddp.analysis.study.axis_significance import CHANCE, adjusted, interaction_p_value, p_value
from hpcddp.analysis.study.series import short_name

HARDLY = 0.01
"""Less than this share is hardly anything, however surely it is there."""

Grid = list[tuple[AxisPanel, list[AxisValue]]]
"""Panels of a key that differ in another key alone, each with the values that all of them have."""


def judged_axes(found: Sequence[Axis]) -> list[Axis]:
    """A study's keys, with what may be claimed of them."""
    panels = [panel for axis in found for panel in axis.panels]
    grids = [(inner, outer, grid) for inner, outer in combinations(found, 2) for grid in _grids(inner, outer)]
    raw = [p_value([value.floats for value in panel.values]) for panel in panels]
    p = adjusted([*raw, *(interaction_p_value([[value.floats for value in row] for _, row in grid]) for *_, grid in grids)])
    of_panels = iter(p)
    with_p = [replace(axis, panels=tuple(replace(panel, p=next(of_panels)) for panel in axis.panels)) for axis in found]
    sure = [each for each, of_grid in zip(grids, of_panels, strict=True) if of_grid is not None and of_grid <= CHANCE]
    depends: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for inner, outer, grid in sure:
        if not any(panel.in_blocks for panel, _ in grid):
            depends.setdefault((inner.key, outer.key), []).append(_interaction(inner, outer, grid))
    said = [(key, sentence) for (key, _), cases in depends.items() for times, sentence in [max(cases)] if times > 1 + HARDLY]
    return [replace(axis, interactions=tuple(text for key, text in said if key == axis.key)) for axis in with_p]


def _grids(inner: Axis, outer: Axis) -> Iterator[Grid]:
    """Two values of each key at least."""
    alike: dict[str, list[AxisPanel]] = {}
    for panel in inner.panels:
        if outer.name in panel.others:
            rest = {name: value for name, value in panel.others.items() if name not in _names(outer)}
            alike.setdefault(replace(panel, others=rest).where, []).append(panel)
    for group in alike.values():
        common = set.intersection(*({value.text for value in panel.values} for panel in group))
        if len(group) > 1 and len(common) > 1:
            yield [(panel, sorted((v for v in panel.values if v.text in common), key=lambda v: v.text)) for panel in group]


def _names(axis: Axis) -> set[str]:
    return {axis.name, *map(short_name, axis.joint)}


def _interaction(inner: Axis, outer: Axis, grid: Grid) -> tuple[float, str]:
    """How many times one effect is another where that is largest, and its sentence."""
    cases = [(*rows, *pair) for rows in permutations(grid, 2) for pair in permutations(range(len(grid[0][1])), 2)]
    gains = [(most[1][i].rate / most[1][j].rate, least[1][i].rate / least[1][j].rate) for most, least, i, j in cases]
    gain, less = max(gains, key=lambda pair: (round(pair[0] / pair[1], 9), pair[0]))
    most, least, i, j = cases[gains.index((gain, less))]
    at, other = (f"{outer.name} {axis_text(panel.others[outer.name])}" for panel, _ in (most, least))
    rest = {name: value for name, value in most[0].others.items() if name not in _names(outer)}
    return gain / less, (
        f"With {at}, {inner.name} {most[1][i].text} is {gain:.2f} times as fast as {most[1][j].text}; "
        f"with {other} it is {less:.2f} times: the two keys depend on each other (at {replace(most[0], others=rest).where})."
    )
