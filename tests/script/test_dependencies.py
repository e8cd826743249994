"""Which values a line depends on: those whose change changes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hpcddp.core.errors import UsageError
from hpcddp.script.dependencies import Input, changed_lines, dependencies


@dataclass(frozen=True, kw_only=True)
class Mast:
    """What stands under a name of the user's."""

    sails: int = 1


@dataclass(frozen=True, kw_only=True)
class Ship:
    """A record of every kind of value."""

    name: str = "Argo"
    oars: int = 50
    load_mb: int | None = 1000
    limit_mb: int | None = 5000
    is_fast: bool = True
    kind: Literal["galley", "cog"] = "galley"
    crew: tuple[str, ...] = ()
    port: str | None = None
    masts: Mapping[str, Mast] = field(default_factory=dict)


MASTS = {"fore": {"sails": 2}, "main": {"sails": 1}}


def lines(records: Mapping[str, Any]) -> list[str]:
    ship = records["ship"]
    if ship.name.startswith("Argox"):
        raise UsageError("no such ship")
    return [
        "begin",
        f"oars {ship.oars // 4}",
        *(["fast"] if ship.is_fast else []),
        f"load {min(ship.load_mb or 0, ship.limit_mb or 9999)}",
        f"as {ship.kind}",
        *[f"with {name}" for name in ship.crew],
        *(["a crew"] if ship.crew else []),
        f"port {ship.port}",
        f"main {next(iter(ship.masts), None)}",
        "",
    ]


def test_each_kind_of_value_is_found() -> None:
    """And nothing else: no limit that is not reached, no value that is not given."""
    base, found = dependencies(
        lines, {"ship": Input(cls=Ship, plain={**vars(Ship()), "crew": ["Jason", "Orpheus"], "masts": MASTS})}
    )
    named = {line: [".".join(map(str, each.path)) for each in values] for line, values in zip(base, found, strict=True)}
    assert named == {
        "begin": [],
        "oars 12": ["oars"],
        "fast": ["is_fast"],
        "load 1000": ["load_mb"],
        "as galley": ["kind"],
        "with Jason": ["crew", "crew.0"],
        "with Orpheus": ["crew", "crew.1"],
        "a crew": ["crew"],
        "port None": [],
        "main fore": ["masts.fore"],
        "": [],
    }


def test_names_of_something_are_changed_to_other_names() -> None:
    """Where no other word will do."""
    source = Input(cls=Ship, plain={"kind": "galley", "name": "Argo"}, names={"name": ["Argo", "Pequod"]})
    _, found = dependencies(lambda records: [*lines(records), records["ship"].name], {"ship": source})
    assert [each.path for each in found[-1]] == [("name",)]


def test_a_line_that_only_moved_has_not_changed() -> None:
    """Nor has one that another of its kind stands for; one of two equal lines that is gone has."""
    assert changed_lines(["a", "b", "c"], ["b", "a", "c"]) == set()
    assert changed_lines(["a", "b", "a"], ["b", "a"]) == {0}
    assert changed_lines(["a", "", "b"], ["a", "b2"]) == {2}
