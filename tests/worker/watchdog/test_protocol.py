"""Rank 0 and another rank as they watch each other, over a real connection."""

from __future__ import annotations

import dataclasses
import select
import socket
import time
from collections.abc import Iterator

import pytest
import torch.distributed as dist

from hpcddp.core.attempt_records import Fault
from hpcddp.worker.master import Store
from hpcddp.worker.ranks import Rank
from hpcddp.worker.watchdog.progress import (
    BEFORE,
    LONGEST_S,
    Beat,
    Connection,
    Failed,
    Goodbye,
    Hello,
    Hung,
    Message,
    Over,
    decode_message,
    encode_message,
)
from hpcddp.worker.watchdog.protocol import Hub, Spoke

BEAT = Beat(*BEFORE, None, False, 0.0, 0.0, 18.0)

FAULT = Fault(kind="error", rank=0, host="gn01", sentence="it failed")

FIRST = Rank(
    rank=0, local_rank=0, world=2, nodes=1, job="1", restart=0, host="gn01", master_addr="127.0.0.1", master_port=0
)  # fmt: skip


@pytest.fixture
def store() -> Store:
    store: Store = dist.HashStore()  # type: ignore[attr-defined]  # documented, but not in __all__
    return store


@pytest.fixture
def ranks(store: Store) -> Iterator[tuple[Hub, Spoke]]:
    hub = Hub(FIRST, store, lambda: None)
    spoke = Spoke(dataclasses.replace(FIRST, rank=1, local_rank=1), store, lambda: None)
    yield hub, spoke
    spoke.close()
    hub.close()


def test_a_rank_may_leave_while_it_tells_a_beat(ranks: tuple[Hub, Spoke]) -> None:
    """Its thread tells beats and its main thread the goodbye: whichever comes last, its end is no fault."""
    hub, spoke = ranks
    spoke.tick(BEAT, 1.0, late=False)
    spoke.leave()
    spoke.tick(BEAT, 1.0, late=False)
    assert hub.receive(1.0) is None
    spoke.close()
    assert hub.receive(2.0) is None


def test_a_rank_that_ends_without_a_word_has_died(ranks: tuple[Hub, Spoke]) -> None:
    hub, spoke = ranks
    spoke.tick(BEAT, 1.0, late=False)
    spoke.close()
    ending = hub.receive(1.0)
    assert ending is not None
    assert (ending.fault.kind, ending.fault.rank) == ("died", 1)


def test_a_rank_may_die_while_rank_0_tells_what_failed(ranks: tuple[Hub, Spoke], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread sees the connection end while the main thread still tells the others."""
    hub, spoke = ranks
    spoke.tick(BEAT, 1.0, late=False)
    assert hub.receive(1.0) is None
    spoke.close()
    monkeypatch.setattr(Connection, "send", lambda connection, message: hub.receive(2.0))
    hub.report(FAULT)


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"\xff\xfe\n", b"7\n", b'{"Hello": 7}\n', b"[" * 20_000 + b"\n"])
def test_a_stranger_is_sent_away(ranks: tuple[Hub, Spoke], store: Store, said: bytes) -> None:
    """Who does not know the token is no rank, whatever it says; the ranks go on hearing each other."""
    hub, spoke = ranks
    spoke.tick(BEAT, 1.0, late=False)
    with socket.create_connection((FIRST.master_addr, int(store.get("hpcddp/watchdog").split()[0]))) as stranger:
        stranger.sendall(said)
        give_up_at = time.monotonic() + 60
        while not select.select([stranger], [], [], 0.01)[0]:
            assert hub.receive(1.0) is None
            assert time.monotonic() < give_up_at
    spoke.close()
    ending = hub.receive(2.0)
    assert ending is not None
    assert (ending.fault.kind, ending.fault.rank) == ("died", 1)


@pytest.mark.parametrize("message", [Hello("3fa9", 1, "gn02"), BEAT, Goodbye(), Failed(FAULT), Over(FAULT), Hung(FAULT)])
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    assert decode_message(encode_message(message)) == message


def test_a_connection_carries_messages_and_knows_its_end() -> None:
    """They arrive complete and in order; a torn line waits for its rest; the end of the other side is noticed."""
    left, right = socket.socketpair()
    here, there = Connection(left), Connection(right)
    here.send(BEAT)
    here.send(Goodbye())
    assert there.received() == [BEAT, Goodbye()]
    line = encode_message(Over(FAULT))
    left.send(line[:7])
    assert (there.received(), there.open) == ([], True)
    left.send(line[7:])
    here.close()
    assert (there.received(), there.open) == ([Over(FAULT)], False)
    there.send(Goodbye())
    there.close()


@pytest.mark.parametrize("which", [0, 1])
def test_a_job_that_was_suspended_goes_on(ranks: tuple[Hub, Spoke], which: int) -> None:
    """Who was stopped has heard nobody meanwhile: neither rank 0 nor the rank that watches it calls the other silent."""
    hub, spoke = ranks
    hub.tick(BEAT, 0.0, late=False)  # welcomes the other, and has nobody yet to tell its beat
    hub.tick(BEAT, 1.0, late=False)
    spoke.tick(BEAT, 1.0, late=False)
    hub.receive(1.0)
    assert ranks[which].tick(BEAT, 2 + LONGEST_S, late=True) is None
    ending = ranks[which].tick(BEAT, 4 + 2 * LONGEST_S, late=False)
    assert ending is not None
    assert (ending.fault.kind, ending.fault.rank) == ("silent", 1 - which)
