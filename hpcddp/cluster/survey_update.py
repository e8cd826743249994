"""Puts what a survey found into a profile's text: the unknown is filled in, the rest stays, with what was found beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hpcddp.cluster.profile import ClusterProfile, Fact
from hpcddp.cluster.yaml_edit import with_value
from hpcddp.core.schema import encode

SOURCE = "survey"
"""Key among the profile's sources."""

Path = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Update:
    """The new text, and a sentence for each value that it changes or contradicts."""

    text: str
    filled: tuple[str, ...]
    conflicts: tuple[str, ...]


def update_profile(text: str, profile: ClusterProfile, values: Mapping[Path, object], source: str, note: str) -> Update:
    """`source`: what the profile says of this survey; `note`: of each value, its date and hosts."""
    filled, conflicts = list[str](), list[str]()
    for path, value in values.items():
        name, known = ".".join(path), profile.facts.get(".".join(path))
        old = _value(profile, path)
        fact = Fact(value=value, grade="A", source=SOURCE, note=note)
        if known is None and old not in (None, {}) and old != value:
            conflicts.append(f"{name} is {old} without a source, the survey says {value}: left as it is")
        elif _is_open(known, old):
            filled.append(f"{name}: {_words(value)}")
            text = with_value(text, path, _plain(_over(known, fact)))
        elif known is not None and known.value != value and known.source != SOURCE:
            conflicts.append(f"{name} is {_words(known.value)} by {known.source}, the survey says {_words(value)}: both are kept")
            text = with_value(text, path, _plain(_beside(known, fact)))
    if filled or conflicts:
        text = with_value(text, ("sources", SOURCE), source)
    return Update(text=text, filled=tuple(filled), conflicts=tuple(conflicts))


def _is_open(known: Fact | None, old: object) -> bool:
    """Whether nobody knew the value, or an earlier survey said it."""
    if known is None:
        return old in (None, {})
    return known.value is None or known.grade == "?" or known.source == SOURCE


def _over(known: Fact | None, found: Fact) -> Fact:
    """What the survey found, with what others say instead; a guess that it contradicts is among them."""
    if known is None:
        return found
    is_guess = known.value is not None and known.source != SOURCE and known.value != found.value
    guess = (replace(known, conflicts=()),) if is_guess else ()
    return replace(found, conflicts=(*guess, *known.conflicts))


def _beside(known: Fact, found: Fact) -> Fact:
    """The known fact with what the survey found among its conflicts, in place of what an earlier survey did."""
    others = tuple(each for each in known.conflicts if each.source != SOURCE)
    return replace(known, conflicts=(*others, found))


def _plain(fact: Fact) -> dict[str, Any]:
    plain: dict[str, Any] = encode(fact, keep_defaults=False)
    return plain


def _value(profile: ClusterProfile, path: Path) -> object:
    found: Any = encode(profile, keep_later=True)
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _words(value: object) -> str:
    """A matrix by its size only."""
    return f"a matrix of {len(value)}" if isinstance(value, Mapping) else str(value)
