"""Rank 0 and another rank as they tell each other beats, over a real connection."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from hpcddp.worker.beats import Hub, Spoke
from hpcddp.worker.pulse import BEFORE, Beat
from hpcddp.worker.ranks import Rank

BEAT = Beat(BEFORE, None, False, 0.0, 0.0, 18.0)

FIRST = Rank(
    rank=0, local_rank=0, world=2, nodes=1, job="1", restart=0, host="gn01", master_addr="127.0.0.1", master_port=0
)  # fmt: skip


class ToldStore(dict[str, bytes]):
    """A rendezvous' store: what one rank set, another gets."""

    def set(self, key: str, value: str) -> None:
        self[key] = value.encode()


@pytest.fixture
def ranks() -> Iterator[tuple[Hub, Spoke]]:
    store = ToldStore()
    hub = Hub(FIRST, store)
    spoke = Spoke(dataclasses.replace(FIRST, rank=1, local_rank=1), store)
    yield hub, spoke
    spoke.close()
    hub.close()


def test_a_rank_may_leave_while_it_tells_a_beat(ranks: tuple[Hub, Spoke]) -> None:
    """Its thread tells beats and its main thread the goodbye: whichever comes last, its end is no fault."""
    hub, spoke = ranks
    spoke.tick(BEAT, 1.0)
    spoke.leave()
    spoke.tick(BEAT, 1.0)
    assert hub.news(1.0) is None
    spoke.close()
    assert hub.news(2.0) is None


def test_a_rank_that_ends_without_a_word_has_died(ranks: tuple[Hub, Spoke]) -> None:
    hub, spoke = ranks
    spoke.tick(BEAT, 1.0)
    spoke.close()
    ending = hub.news(1.0)
    assert ending is not None
    assert (ending.fault.kind, ending.fault.rank) == ("died", 1)
