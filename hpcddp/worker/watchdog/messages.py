"""What rank 0 and the other ranks tell each other, and the connection that carries it: JSON, one message a line."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
from dataclasses import dataclass
from typing import Any

from hpcddp.core.attempt_records import Fault
from hpcddp.worker.watchdog.progress import Beat

CONNECT_S = 20.0


@dataclass(frozen=True)
class Hello:
    """The first message of a rank to rank 0."""

    token: str
    """Rank 0's, from the rendezvous' store: who does not know it is no rank."""
    rank: int
    host: str


@dataclass(frozen=True)
class Goodbye:
    """To rank 0: from here on the end of this rank is no fault."""


@dataclass(frozen=True)
class Failed:
    """To rank 0: this rank ends."""

    fault: Fault


@dataclass(frozen=True)
class Over:
    """From rank 0: all ranks end."""

    fault: Fault


@dataclass(frozen=True)
class Hung:
    """From rank 0: this rank hangs, and ends once it has said where."""

    fault: Fault


@dataclass(frozen=True)
class DumpRequest:
    """From rank 0: ranks seem to hang, and each says which collectives it has begun."""


@dataclass(frozen=True)
class Dumped:
    """To rank 0: process group -> its state, as flight_recorder.dump_collectives has it."""

    groups: dict[str, Any]


Message = Hello | Beat | Goodbye | Failed | Over | Hung | DumpRequest | Dumped

_KINDS = {kind.__name__: kind for kind in (Hello, Beat, Goodbye, Failed, Over, Hung, DumpRequest, Dumped)}


def encode(message: Message) -> bytes:
    """A line."""
    return json.dumps({type(message).__name__: dataclasses.asdict(message)}, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """The reverse; ValueError for what is no message."""
    try:
        ((kind, fields),) = json.loads(line).items()
        if "fault" in fields:
            fields["fault"] = Fault(**fields["fault"])
        message: Message = _KINDS[kind](**fields)
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError("not a message of a rank") from error
    return message


class Connection:
    """One end of it, which never waits."""

    def __init__(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        self._peer = peer
        self._incomplete_line = b""
        self.open = True
        """Until the other end has gone."""

    def fileno(self) -> int:
        return self._peer.fileno()

    def send(self, message: Message) -> None:
        """What cannot be sent at once is lost: the other end does not read, or has gone."""
        with contextlib.suppress(OSError):
            self._peer.send(encode(message))

    def received(self) -> list[Message]:
        """What came in since; `open` says afterwards whether there may be more."""
        data = self._incomplete_line
        try:
            while chunk := self._peer.recv(65536):
                data += chunk
            self.open = False
        except BlockingIOError:
            pass
        except OSError:
            self.open = False
        *lines, self._incomplete_line = data.split(b"\n")
        try:
            return [decode(line) for line in lines]
        except ValueError:  # a stranger, who does not speak as a rank does
            self.open = False
            return []

    def close(self) -> None:
        self._peer.close()


def connect(address: str, port: int) -> Connection:
    """OSError where it cannot be reached."""
    peer = socket.create_connection((address, port), timeout=CONNECT_S)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(peer)
