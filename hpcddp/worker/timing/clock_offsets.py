"""How far a rank's timeline is ahead of rank 0's: exchanges over TCP, the one with the shortest round trip taken.

Rank 0's clock is read between the sending of a question and the arrival of its answer, so the offset is wrong by half that time
at most, whatever the way there and back share of it (Cristian 1989; NTP's clock filter, RFC 5905 section 10, takes the shortest
as well). Two estimates, before and after training, also give the drift in between.
"""

from __future__ import annotations

import secrets
import socket
import struct
import time
from collections.abc import Callable

from hpcddp.core.attempt_records import ClockOffset
from hpcddp.worker.master import listen
from hpcddp.worker.rendezvous import ProcessGroup

EXCHANGES = 50
"""About 5 ms per rank over a network of 0.1 ms; the shortest of 50 meets no other traffic."""

WAIT_S = 20.0
"""For all ranks; those that have not been served by then have no estimate."""

PEER_WAIT_S = 2.0
"""For one rank's next message, so that a stranger who connects and is silent does not use up the time."""

_TIME = struct.Struct("!q")

NowNs = Callable[[], int]
"""Unix time on the timeline of the rank's step rows, in ns: StepTimer.unix_now."""


def offset_to_rank_0(group: ProcessGroup, now_ns: NowNs, when: str, wait_s: float = WAIT_S) -> ClockOffset | None:
    """What to add to this rank's times to have rank 0's; None, with a warning, where no estimate came about. All ranks call it,
    once for each `when` (a word); rank 0 serves one after the other."""
    rank = group.rank
    try:
        if rank.rank:
            return _measure(group, now_ns, when, wait_s)
        if rank.world > 1:
            _serve_all(group, now_ns, when, wait_s)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: the store's
        print(f"hpcddp: rank {rank.rank} on {rank.host}: clock offsets may be unknown {when}: {error}", flush=True)
    return None if rank.rank else ClockOffset(unix_ns=now_ns(), offset_ns=0, error_ns=0)


def _serve_all(group: ProcessGroup, now_ns: NowNs, when: str, wait_s: float) -> None:
    """Serves the other ranks one after the other, until all were served or time is up."""
    give_up_at, token, waiting = time.monotonic() + wait_s, secrets.token_bytes(16), group.rank.world - 1
    with _listener(group, when) as listener:
        group.store.set(_key(when), f"{listener.getsockname()[1]} {token.hex()}")
        while waiting:
            listener.settimeout(max(0.001, give_up_at - time.monotonic()))
            try:
                peer, _ = listener.accept()
            except TimeoutError:
                raise TimeoutError(f"{waiting} rank(s) sent no request within {wait_s:g} s") from None
            with peer:
                waiting -= _serve(peer, now_ns, token)


def _listener(group: ProcessGroup, when: str) -> socket.socket:
    try:
        return listen(group.rank.master_addr, group.rank.world)
    except OSError:
        group.store.set(_key(when), "")  # nobody need wait for it
        raise


def _serve(peer: socket.socket, now_ns: NowNs, token: bytes) -> bool:
    """Answers one rank; whether it was one of ours and asked all its questions."""
    peer.settimeout(PEER_WAIT_S)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        if _receive(peer, len(token)) != token:
            return False
        for _ in range(EXCHANGES):
            peer.sendall(_TIME.pack(now_ns()))
            _receive(peer, 1)
    except OSError:
        return False
    return True


def _measure(group: ProcessGroup, now_ns: NowNs, when: str, wait_s: float) -> ClockOffset:
    found = group.store.get(_key(when)).decode()
    if not found:
        raise ConnectionError("rank 0 could not listen")
    port, token = found.split()
    with socket.create_connection((group.rank.master_addr, int(port)), timeout=wait_s) as server:
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.sendall(bytes.fromhex(token))
        _receive(server, _TIME.size)  # rank 0 serves this rank now
        best = min((_exchange(server, now_ns) for _ in range(EXCHANGES - 1)), key=lambda found: found.error_ns)
        server.sendall(b"!")
        return best


def _exchange(server: socket.socket, now_ns: NowNs) -> ClockOffset:
    sent_ns = now_ns()
    server.sendall(b"?")
    (theirs_ns,) = _TIME.unpack(_receive(server, _TIME.size))
    return estimate(sent_ns, theirs_ns, now_ns())


def estimate(sent_ns: int, theirs_ns: int, answered_ns: int) -> ClockOffset:
    """offset = their time - the middle of ours, error = half the round trip; all integer ns, the error rounded up."""
    middle_ns = (sent_ns + answered_ns) // 2
    return ClockOffset(unix_ns=middle_ns, offset_ns=theirs_ns - middle_ns, error_ns=-((sent_ns - answered_ns) // 2))


def _receive(connection: socket.socket, size: int) -> bytes:
    data = connection.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise ConnectionError("the other side closed the connection")
    return data


def _key(when: str) -> str:
    return f"hpcddp/clock/{when}"
