"""Conditions on a number with parts, as rules of a profile write them: `>1`, `1`, `<2.21`, `>=2.27`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping

from hpcddp.core.errors import UsageError

SIGNS: Mapping[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

FORM = re.compile(r"([<>]=?|)\s*(\d+(?:\.\d+)*)")


def holds(condition: str, *number: int) -> bool:
    """Whether it holds of `number`, by as many parts as the condition has: 2.21.5 is `2.21` and `<=2.21`."""
    found = FORM.fullmatch(condition)
    if found is None:
        raise UsageError(f"`{condition}` is no condition; `>1`, `<2.21`, `>=2.27` or a number alone is expected")
    parts = tuple(map(int, found[2].split(".")))
    return SIGNS[found[1]](number[: len(parts)], parts)
