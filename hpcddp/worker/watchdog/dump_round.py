"""At a hang rank 0 asks every rank which collectives it has begun, before the first of them ends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from hpcddp.core.schema import SchemaError, decode_record
from hpcddp.worker.watchdog.collectives import Groups, GroupState, stalled_collective

WAIT_S = 3.0
"""A rank reads within a second, and torch answers within flight_recorder.DUMP_S; one that is stopped never does."""

Dump = Callable[[], "dict[str, Any] | None"]
"""Writes this rank's collectives, and says in short what they are; None where torch has none."""


class DumpRound:
    """Rank 0's: begun when ranks seem to hang, and over when all that can have answered."""

    def __init__(self, own: Mapping[str, Any], now_s: float) -> None:
        self._groups: dict[int, Groups] = {}
        self._until_s = now_s + WAIT_S
        self.add(0, own)

    def add(self, rank: int, plain: Mapping[str, Any]) -> None:
        """What a rank answered; what is no such record counts as no answer."""
        try:
            self._groups[rank] = {str(name): decode_record(GroupState, state) for name, state in plain.items()}
        except (SchemaError, AttributeError):
            self._groups[rank] = {}

    def is_over(self, now_s: float, ranks: Collection[int]) -> bool:
        """`ranks`: those that are there to answer."""
        return now_s >= self._until_s or all(rank in self._groups for rank in ranks)

    def words(self, world: int) -> str | None:
        """Which collective they hang in; None where it cannot be told."""
        return stalled_collective({rank: groups for rank, groups in self._groups.items() if groups}, world)
