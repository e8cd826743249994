"""A group of a sweep's points: axes as a product, lists that move together, points added and points left out.

shrinking:
  layout.nodes: [1, 2, 4]                                         # an axis: every value with every other axis's
  zip: {workload.batch_per_gpu: [64, 32], workload.optimizer.lr: [0.1, 0.05]}    # value by value, as one axis
  where: ranks <= 8                                               # only points for which this holds, or all of a list
  exclude: [layout.nodes == 4 and workload.batch_per_gpu == 64]   # none for which one of these holds
  include: [{layout.nodes: 8, workload.batch_per_gpu: 16}]        # and these besides, whatever where and exclude say
"""

from __future__ import annotations

import functools
import itertools
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcddp.cluster.yamlfile import parse_yaml
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Point, flat_keys
from hpcddp.core.schema import Path, SchemaError, decode, did_you_mean

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
        raise UsageError(f"{key} is {values.get(key)!r}, which `{op}` cannot compare with {wanted!r}") from error


AXIS_ROOTS = ("workload", "layout", "measure", "device", "work", "env")
"""What an axis may vary: the parts of a point."""

KEYWORDS = ("zip", "include", "exclude", "where")
"""Keys of a group that are not axes."""

AxisValues = Mapping[str, object]
"""Key of a sweep -> its value in one point."""


@dataclass(frozen=True, kw_only=True)
class Combination:
    """What one point of a group changes in the sweep."""

    values: AxisValues
    places: Mapping[str, Path]
    """Where in the file a key's values stand."""
    included: bool = False
    """Listed by `include`: conditions do not choose among these."""


@dataclass(frozen=True, kw_only=True)
class SweepGroup:
    """One entry of `points`."""

    name: str
    factors: tuple[tuple[AxisValues, ...], ...]
    """An axis each, or lists that move together: what a product takes one of."""
    include: tuple[AxisValues, ...] = ()
    where: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    places: Mapping[str, Path]

    @functools.cached_property
    def keys(self) -> frozenset[str]:
        """What its axes vary."""
        return frozenset(key for factor in self.factors for key in factor[0])

    @functools.cached_property
    def all_keys(self) -> frozenset[str]:
        """The same, and what its included points change."""
        return self.keys.union(*self.include)

    def combinations(self, also: Mapping[str, Sequence[object]]) -> Iterator[Combination]:
        """The product in the file's order, then what is included; `also`: more axes, over keys that the group does not vary."""
        only_listed = self.include and not self.factors
        for values in _product([*([()] if only_listed else self.factors), *_factors(also, self.keys)]):
            yield Combination(values=values, places=self.places)
        for at, entry in enumerate(self.include):
            places: dict[str, Path] = {key: ("points", self.name, "include", at, key) for key in entry}
            for values in _product([(entry,), *_factors(also, self.keys | set(entry))]):
                yield Combination(values=values, places=places, included=True)


def read_group(name: str, plain: Mapping[str, object]) -> SweepGroup:
    """The group as the file has it; SchemaError says where something does not fit."""
    here: Path = ("points", name)
    places: dict[str, Path] = {}
    factors = []
    for key, value in plain.items():
        if key == "zip":
            factors.append(_zipped(value, (*here, key), places))
        elif key not in KEYWORDS:
            values = _values(key, value, (*here, key), name, places)
            factors.append(tuple({key: each} for each in values))
    include = decode(tuple[dict[str, object], ...], plain.get("include", []), (*here, "include"))
    for at, entry in enumerate(include):
        for key in entry:
            _check_axis(key, (*here, "include", at, key))
    where, exclude = (_conditions(plain.get(word, []), (*here, word)) for word in ("where", "exclude"))
    return SweepGroup(name=name, factors=tuple(factors), include=include, where=where, exclude=exclude, places=places)


def _product(factors: Sequence[Sequence[AxisValues]]) -> Iterator[AxisValues]:
    for parts in itertools.product(*factors):
        yield {key: value for part in parts for key, value in part.items()}


def _factors(axes: Mapping[str, Sequence[object]], without: frozenset[str]) -> list[list[AxisValues]]:
    return [[{key: value} for value in values] for key, values in axes.items() if key not in without]


def _zipped(plain: object, here: Path, places: dict[str, Path]) -> tuple[AxisValues, ...]:
    """Lists of one length as one axis: its values are the first of each, the second of each, and so on."""
    lists = {
        key: _values(key, values, (*here, key), str(here[1]), places)
        for key, values in decode(dict[str, object], plain, here).items()
    }
    if not lists:
        raise SchemaError(here, "`zip` has no lists. Write {KEY: [..], KEY: [..]}, or remove it.")
    (first, length), *others = ((key, len(values)) for key, values in lists.items())
    for key, other in others:
        if other != length:
            raise SchemaError(
                (*here, key), f"`{key}` has {other} values, but `{first}` {length}. Lists of `zip` need the same length."
            )
    return tuple(dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True))


def _values(key: str, plain: object, here: Path, group: str, places: dict[str, Path]) -> tuple[object, ...]:
    _check_axis(key, here)
    values = decode(tuple[object, ...], plain, here)
    if not values:
        raise SchemaError(here, f"`{key}` has no values, so group `{group}` has no points")
    if key in places:
        raise SchemaError(here, f"`{key}` is both an axis and in `zip`. Remove one of them.")
    places[key] = here
    return values


def _check_axis(key: str, here: Path) -> None:
    if key.split(".", maxsplit=1)[0] not in AXIS_ROOTS:
        raise SchemaError(here, f"`{key}` cannot be an axis{did_you_mean(key, (*AXIS_ROOTS, *KEYWORDS))}")


def _conditions(plain: object, here: Path) -> tuple[str, ...]:
    """One condition, or a list of them."""
    return (plain,) if isinstance(plain, str) else decode(tuple[str, ...], plain, here)


def products_of(rows: Sequence[tuple[str, ...]]) -> list[list[tuple[str, ...]]]:
    """The rows as few products of values: those that differ in one column alone become one, column after column."""
    found: list[list[tuple[str, ...]]] = [[(value,) for value in row] for row in dict.fromkeys(rows)]
    for i in range(len(rows[0])):
        merged = dict[object, list[tuple[str, ...]]]()
        for row in found:
            same = merged.setdefault((*row[:i], *row[i + 1 :]), [*row[:i], (), *row[i + 1 :]])
            same[i] += row[i]
        found = list(merged.values())
    return found
