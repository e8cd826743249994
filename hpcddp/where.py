"""`--where 'layout.nodes <= 4'`: chooses points by comparing their keys, `ranks` or `global_batch` with values; nothing is
evaluated."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

from hpcddp.errors import UsageError
from hpcddp.point import flat_keys
from hpcddp.schema import did_you_mean
from hpcddp.sweep import PlannedPoint
from hpcddp.yamlfile import parse_yaml

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "in": lambda value, allowed: value in allowed,
}

CONDITION = re.compile(r"\s*([\w.]+)\s*(<=|>=|==|!=|<|>|\bin\b)\s*(.+?)\s*")


def choose(points: Sequence[PlannedPoint], conditions: Sequence[str]) -> list[PlannedPoint]:
    """The points for which every condition holds; each may join several by `and`."""
    parsed = [_parse(part) for condition in conditions for part in re.split(r"\band\b", condition)]
    return [planned for planned in points if all(_holds(planned, *condition) for condition in parsed)]


def _parse(text: str) -> tuple[str, str, Any]:
    found = CONDITION.fullmatch(text)
    if found is None:
        raise UsageError(f"--where {text!r}: write KEY OP VALUE, such as 'layout.nodes <= 4' or 'layout.nodes in [1, 2]'")
    key, op, value = found.groups()
    return key, op, parse_yaml(value, f"--where {text!r}")


def _holds(planned: PlannedPoint, key: str, op: str, wanted: Any) -> bool:
    point = planned.point
    flat = {"ranks": point.ranks, "global_batch": point.global_batch, **flat_keys(point)}
    if key not in flat:
        raise UsageError(f"--where: no key `{key}` in a point{did_you_mean(key, flat)}")
    try:
        return COMPARE[op](flat[key], wanted)
    except TypeError as error:
        raise UsageError(f"--where: {key} is {flat[key]!r}; it cannot be compared by `{op}` with {wanted!r}") from error
