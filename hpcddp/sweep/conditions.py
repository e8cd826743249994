"""`layout.nodes <= 4`: chooses points by comparing their keys, `ranks`, `gpus` or `global_batch` with values.

For `--where`, and for `where` and `exclude` of a sweep's groups. Nothing is evaluated.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcddp.cluster.yamlfile import parse_yaml
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Point, flat_keys
from hpcddp.core.schema import did_you_mean

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "in": lambda value, allowed: value in allowed,
}

COMPARISON = re.compile(r"\s*([\w.]+)\s*(<=|>=|==|!=|<|>|\bin\b)\s*(.+?)\s*")

ComparedValues = Mapping[str, object]
"""What conditions compare: a point's keys, flat, and `ranks`, `gpus` and `global_batch`."""


@dataclass(frozen=True)
class Condition:
    """Comparisons, all of which must hold."""

    text: str
    comparisons: tuple[tuple[str, str, object], ...]

    def holds(self, values: ComparedValues) -> bool:
        """UsageError for a key that no point has, and for values that cannot be compared."""
        return all(_holds(values, *comparison) for comparison in self.comparisons)


def parse_condition(text: str) -> Condition:
    """The condition; it may join several comparisons by `and`. UsageError for what is none."""
    return Condition(text, tuple(_parse(part) for part in re.split(r"\band\b", text)))


def compared_values(point: Point) -> ComparedValues:
    """What conditions may name of a point, with its values."""
    batch = {} if point.workload.known_batch is None else {"global_batch": point.global_batch}
    return {"ranks": point.ranks, "gpus": point.gpus, **batch, **flat_keys(point)}


def matching(points: Sequence[Point], conditions: Sequence[str]) -> list[bool]:
    """For each point, whether every `--where` holds."""
    matches = [True] * len(points)
    for text in conditions:
        try:
            condition = parse_condition(text)
            matches = [so_far and condition.holds(compared_values(point)) for so_far, point in zip(matches, points, strict=True)]
        except UsageError as error:
            raise UsageError(f"--where {text!r}: {error}") from error
    return matches


def _parse(text: str) -> tuple[str, str, object]:
    found = COMPARISON.fullmatch(text)
    if found is None:
        raise UsageError("write KEY OP VALUE, such as 'layout.nodes <= 4' or 'layout.nodes in [1, 2]'")
    key, op, value = found.groups()
    return key, op, parse_yaml(value, f"`{value}`")


def _holds(values: ComparedValues, key: str, op: str, wanted: object) -> bool:
    if key not in values and not key.startswith("env."):  # a variable that is not set is null
        raise UsageError(f"no key `{key}` in a point{did_you_mean(key, values)}")
    try:
        return COMPARE[op](values.get(key), wanted)
    except TypeError as error:
        raise UsageError(f"{key} is {values.get(key)!r}; it cannot be compared by `{op}` with {wanted!r}") from error
