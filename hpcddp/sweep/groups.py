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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpcddp.core.schema import Path, SchemaError, decode, did_you_mean

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
        raise SchemaError(here, "`zip` has no lists; write {KEY: [..], KEY: [..]}, or leave it out")
    (first, length), *others = ((key, len(values)) for key, values in lists.items())
    for key, other in others:
        if other != length:
            raise SchemaError(
                (*here, key), f"`{key}` has {other} values and `{first}` {length}: lists that move together are of one length"
            )
    return tuple(dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True))


def _values(key: str, plain: object, here: Path, group: str, places: dict[str, Path]) -> tuple[object, ...]:
    _check_axis(key, here)
    values = decode(tuple[object, ...], plain, here)
    if not values:
        raise SchemaError(here, f"`{key}` has no values, so group `{group}` has no points")
    if key in places:
        raise SchemaError(here, f"`{key}` is an axis and in `zip`, too: leave one of them out")
    places[key] = here
    return values


def _check_axis(key: str, here: Path) -> None:
    if key.split(".", maxsplit=1)[0] not in AXIS_ROOTS:
        raise SchemaError(here, f"`{key}` cannot be an axis{did_you_mean(key, (*AXIS_ROOTS, *KEYWORDS))}")


def _conditions(plain: object, here: Path) -> tuple[str, ...]:
    """One condition, or a list of them."""
    return (plain,) if isinstance(plain, str) else decode(tuple[str, ...], plain, here)
