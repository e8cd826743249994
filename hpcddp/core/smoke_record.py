"""smoke.json, and what each rank of a smoke test leaves for it, as frozen dataclasses. For Python 3.10, without libraries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpcddp.core.launch_record import NodeFacts
from hpcddp.core.records import SCHEMA
from hpcddp.core.schema import Count, added_later


@dataclass(frozen=True, kw_only=True)
class SmokeFindings:
    """What one rank found; `problems` are sentences."""

    rank: Count
    host: str
    data_root: str | None
    data_seen: bool | None
    """Whether the folder can be read there; None where the run needs none."""
    problems: tuple[str, ...]
    versions: Mapping[str, str | None] | None = added_later(None)
    """Of the software that computes; None where torch does not work."""
    node: NodeFacts | None = added_later(None)
    summed: int | None = added_later(None)
    """A sum of ones over all ranks, by the way that training takes."""


@dataclass(frozen=True, kw_only=True)
class SmokeData:
    """The data folder as the user wrote it, and the hosts that can read it."""

    root: str | None = None
    seen_by: tuple[str, ...] = ()
    missing_on: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SmokeSummary:
    """smoke.json: a problem that several ranks have stands in it once."""

    schema: int = SCHEMA
    ok: bool
    problems: tuple[str, ...]
    node_type: str | None = added_later(None)
    """On which its nodes are; None where earlier versions did not say."""
    data: SmokeData = SmokeData()
    ranks: tuple[SmokeFindings, ...] = ()
