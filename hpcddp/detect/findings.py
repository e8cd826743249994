"""One field of a profile beside what Slurm says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.detect.fields import NO_LIMIT

FieldVerdict = Literal["agrees", "differs", "new", "unknown"]
"""new: the profile does not say it, Slurm does; unknown: Slurm does not say it."""

NONE = "no limit"


@dataclass(frozen=True, kw_only=True)
class FieldFinding:
    """A field with both values."""

    field: str
    """Dotted path in the profile."""
    verdict: FieldVerdict
    profile: object = None
    slurm: object = None
    why: str | None = None
    """Of an unknown one: why Slurm does not say it."""


def judge_field(field: str, said: object, observed: Sequence[object], why: str) -> FieldFinding:
    """What the profile says beside the values that Slurm has (several, where its nodes differ); None among them is unknown."""
    known = [value for value in dict.fromkeys(observed) if value is not None]
    slurm = known[0] if len(known) == 1 else ", ".join(map(str, known))
    if not known:
        return FieldFinding(field=field, verdict="unknown", profile=said, why=why)
    if known == [said]:
        return FieldFinding(field=field, verdict="agrees", profile=said, slurm=slurm)
    if said is None:
        return FieldFinding(field=field, verdict="new", slurm=slurm)
    return FieldFinding(field=field, verdict="differs", profile=said, slurm=slurm)


def judge_limit(profile: ClusterProfile, field: str, said: int | None, observed: Sequence[int | None], why: str) -> FieldFinding:
    """The same of a limit, of which there may be none; the first of the values is shown, any of them agrees.

    A profile's null is drift only where its fact says that there is none: with grade "?" or without a fact it is not known.
    """
    known = [value for value in observed if value is not None]
    if not known:
        return FieldFinding(field=field, verdict="unknown", profile=said, why=why)
    slurm = NONE if known[0] == NO_LIMIT else known[0]
    if (said or NO_LIMIT) in known:
        return FieldFinding(field=field, verdict="agrees", profile=said, slurm=slurm)
    if said is None and is_open(profile, field):
        return FieldFinding(field=field, verdict="new", slurm=slurm)
    return FieldFinding(field=field, verdict="differs", profile=NONE if said is None else said, slurm=slurm)


def is_open(profile: ClusterProfile, field: str) -> bool:
    """Whether a null there is something that the profile does not know."""
    fact = profile.facts.get(field)
    return fact is None or fact.grade == "?"
