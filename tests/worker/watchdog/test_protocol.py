"""Rank 0 and another rank as they tell each other beats, over a real connection."""

from __future__ import annotations

import dataclasses
import select
import socket
import time
from collections.abc import Iterator

import pytest

from hpcddp.worker.faults import Fault
from hpcddp.worker.json_socket import Wire
from hpcddp.worker.ranks import Rank
from hpcddp.worker.watchdog.progress import BEFORE, LONGEST_S, Beat
from hpcddp.worker.watchdog.protocol import Hub, Spoke

BEAT = Beat(BEFORE, None, False, 0.0, 0.0, 18.0)

FIRST = Rank(
    rank=0, local_rank=0, world=2, nodes=1, job="1", restart=0, host="gn01", master_addr="127.0.0.1", master_port=0
)  # fmt: skip


class ToldStore(dict[str, bytes]):
    """A rendezvous' store: what one rank set, another gets."""

    def set(self, key: str, value: str) -> None:
        self[key] = value.encode()


@pytest.fixture
def store() -> ToldStore:
    return ToldStore()


@pytest.fixture
def ranks(store: ToldStore) -> Iterator[tuple[Hub, Spoke]]:
    hub = Hub(FIRST, store)
    spoke = Spoke(dataclasses.replace(FIRST, rank=1, local_rank=1), store)
    yield hub, spoke
    spoke.close()
    hub.close()


def test_a_rank_may_leave_while_it_tells_a_beat(ranks: tuple[Hub, Spoke]) -> None:
    """Its thread tells beats and its main thread the goodbye: whichever comes last, its end is no fault."""
    hub, spoke = ranks
    spoke.tick(BEAT, 1.0, late=False)
    spoke.leave()
    spoke.tick(BEAT, 1.0, late=False)
    assert hub.news(1.0) is None
    spoke.close()
    assert hub.news(2.0) is None


def test_a_rank_that_ends_without_a_word_has_died(ranks: tuple[Hub, Spoke]) -> None:
    hub, spoke = ranks
    spoke.tick(BEAT, 1.0, late=False)
    spoke.close()
    ending = hub.news(1.0)
    assert ending is not None
    assert (ending.fault.kind, ending.fault.rank) == ("died", 1)


def test_a_rank_may_die_while_rank_0_tells_what_failed(ranks: tuple[Hub, Spoke], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread sees the connection end while the main thread still tells the others."""
    hub, spoke = ranks
    spoke.tick(BEAT, 1.0, late=False)
    assert hub.news(1.0) is None
    spoke.close()
    monkeypatch.setattr(Wire, "send", lambda wire, plain: hub.news(2.0))
    hub.tell(Fault(kind="error", rank=0, host="gn01", sentence="it failed"))


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"\xff\xfe\n", b"7\n", b'{"hello": 7}\n', b"[" * 20_000 + b"\n"])
def test_a_stranger_is_sent_away(ranks: tuple[Hub, Spoke], store: ToldStore, said: bytes) -> None:
    """Who does not know the word is no rank, whatever it says; the ranks go on hearing each other."""
    hub, spoke = ranks
    spoke.tick(BEAT, 1.0, late=False)
    with socket.create_connection((FIRST.master_addr, int(store["hpcddp/heart"].split()[0]))) as stranger:
        stranger.sendall(said)
        give_up_at = time.monotonic() + 60
        while not select.select([stranger], [], [], 0.01)[0]:
            assert hub.news(1.0) is None
            assert time.monotonic() < give_up_at
    spoke.close()
    ending = hub.news(2.0)
    assert ending is not None
    assert (ending.fault.kind, ending.fault.rank) == ("died", 1)


@pytest.mark.parametrize("which", [0, 1])
def test_a_job_that_was_suspended_goes_on(ranks: tuple[Hub, Spoke], which: int) -> None:
    """Who was stopped has heard nobody meanwhile: neither rank 0 nor the rank that watches it calls the other silent."""
    hub, spoke = ranks
    hub.tick(BEAT, 0.0, late=False)  # welcomes the other, and has nobody yet to tell its beat
    hub.tick(BEAT, 1.0, late=False)
    spoke.tick(BEAT, 1.0, late=False)
    hub.news(1.0)
    assert ranks[which].tick(BEAT, 2 + LONGEST_S, late=True) is None
    ending = ranks[which].tick(BEAT, 4 + 2 * LONGEST_S, late=False)
    assert ending is not None
    assert (ending.fault.kind, ending.fault.rank) == ("silent", 1 - which)
