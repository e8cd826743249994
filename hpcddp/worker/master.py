"""MASTER_ADDR and MASTER_PORT: that the address resolves, and which port the ranks' store has where the given one is taken.

Rank 0 answers at MASTER_PORT or, where another program listens there, at a second port that follows from it, and names the port
of its store to each rank that asks. Ranks ask at both by turns: what answers without naming this job is a stranger. torch's own
client cannot do it, as it waits for ever for a stranger that says nothing. Imports without torch.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Protocol

from hpcddp.core.errors import HpcddpError
from hpcddp.worker.ranks import Rank

LOWEST_PORT, PORTS, APART = 10_000, 20_000, 9_973
"""Ports as the job script chooses them, by the number of the job; jobs submitted together have neighbouring ones, so the second
port is far off."""

TRIES, AGAIN_S = 3, 2.0
"""A name server that all ranks of a job ask at once may have no answer at first (EAI_AGAIN)."""

ANSWER_S = 5.0
"""For connecting, and for a line; a node under load may need seconds."""

RETRY_EVERY_S = 0.2

MOST_BYTES = 200
"""Of a question or an answer: names of jobs are short."""


class Store(Protocol):
    """What the worker uses of torch.distributed.Store, a table of keys and values for all ranks; RuntimeError where it fails."""

    def set(self, key: str, value: str) -> None: ...

    def get(self, key: str) -> bytes:
        """Waits for the key."""
        ...

    def add(self, key: str, amount: int) -> int: ...

    def check(self, keys: list[str]) -> bool: ...

    def wait(self, keys: list[str], timeout: timedelta) -> None: ...


class NoAddressError(HpcddpError):
    """MASTER_ADDR does not resolve on this host."""


def check_address(rank: Rank) -> None:
    """NoAddressError where the ranks could never meet; torch would retry until the job's time is up."""
    for left in reversed(range(TRIES)):
        try:
            socket.getaddrinfo(rank.master_addr, rank.master_port, type=socket.SOCK_STREAM)
            return
        except OSError as error:
            if error.errno == socket.EAI_AGAIN and left:
                time.sleep(AGAIN_S)
                continue
            raise NoAddressError(
                f"MASTER_ADDR {rank.master_addr} does not resolve on {rank.host} ({error.strerror or error}). "
                f"Check `getent hosts {rank.master_addr}` on every node, or export an IP address in the script."
            ) from error


def ports(first: int) -> tuple[int, int]:
    """MASTER_PORT, and the one that is tried where it is taken."""
    return first, LOWEST_PORT + (first - LOWEST_PORT + APART) % PORTS


def listen(near: str, ranks: int, port: int = 0) -> socket.socket:
    """`port` (0: a free one) on every address of this host, in the family in which the others look for it; `near` is its name."""
    family = socket.getaddrinfo(near, 0, type=socket.SOCK_STREAM)[0][0]
    listener = socket.create_server(("", port), family=family, backlog=ranks)
    listener.setblocking(False)
    return listener


@contextlib.contextmanager
def naming_store(rank: Rank, store_port: int) -> Iterator[None]:
    """On rank 0: answers the others while they meet. OSError where both ports are taken."""
    listener = _listener(rank)
    with listener:
        answering = threading.Thread(target=_answer, args=(listener, rank, store_port), name="hpcddp-master", daemon=True)
        answering.start()
        yield
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # wakes its accept()
        answering.join(ANSWER_S)


def find_store(rank: Rank, limit_s: float) -> int:
    """The port of rank 0's store; TimeoutError where nobody names one."""
    give_up_at = time.monotonic() + limit_s
    for port in itertools.cycle(ports(rank.master_port)):
        found = _query(rank, port)
        if found is not None:
            return found
        if time.monotonic() >= give_up_at:
            raise TimeoutError(f"rank 0 did not answer within {limit_s:g} s")
        time.sleep(RETRY_EVERY_S)
    raise AssertionError


def _listener(rank: Rank) -> socket.socket:
    first, second = ports(rank.master_port)
    try:
        return listen(rank.master_addr, rank.world, first)
    except OSError:
        print(f"hpcddp: MASTER_PORT {first} is in use on {rank.host}; the rendezvous uses {second}", flush=True)
        return listen(rank.master_addr, rank.world, second)


def _answer(listener: socket.socket, rank: Rank, store_port: int) -> None:
    line = json.dumps([*_attempt_id(rank), store_port]).encode() + b"\n"
    listener.setblocking(True)
    while True:
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        with peer, contextlib.suppress(OSError, ValueError):
            peer.settimeout(ANSWER_S)
            if _read_json(peer) == _attempt_id(rank):
                peer.sendall(line)


def _query(rank: Rank, port: int) -> int | None:
    """None where nobody listens yet, or a stranger does."""
    with contextlib.suppress(OSError, ValueError):
        with socket.create_connection((rank.master_addr, port), timeout=ANSWER_S) as peer:
            peer.sendall(json.dumps(_attempt_id(rank)).encode() + b"\n")
            answer = _read_json(peer)
        if isinstance(answer, list) and answer[:-1] == _attempt_id(rank):
            return int(answer[-1])
    return None


def _attempt_id(rank: Rank) -> list[object]:
    """What ranks of one attempt say to each other: a rank of an earlier one, on a node that came back, is a stranger too."""
    return ["hpcddp", rank.job, rank.restart, rank.world]


def _read_json(peer: socket.socket) -> object:
    """A JSON value; ValueError or OSError where it is none, or does not come in time."""
    data, give_up_at = b"", time.monotonic() + ANSWER_S
    while not data.endswith(b"\n"):
        more = peer.recv(MOST_BYTES)
        if not more or len(data) > MOST_BYTES or time.monotonic() > give_up_at:
            raise ValueError("not a line")
        data += more
    found: object = json.loads(data)
    return found
