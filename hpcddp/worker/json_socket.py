"""A connection between two ranks that carries small JSON values, one a line, and never waits."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any

CONNECT_S = 20.0


class Wire:
    """One end."""

    def __init__(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        self._peer = peer
        self._half = b""
        self.open = True
        """Until the other end has gone."""

    def fileno(self) -> int:
        return self._peer.fileno()

    def send(self, plain: Any) -> None:
        """What cannot be sent at once is lost: the other end does not read, or has gone."""
        with contextlib.suppress(OSError):
            self._peer.send(json.dumps(plain, separators=(",", ":")).encode() + b"\n")

    def received(self) -> list[Any]:
        """What came in since; `open` says afterwards whether there may be more."""
        data = self._half
        try:
            while chunk := self._peer.recv(65536):
                data += chunk
            self.open = False
        except BlockingIOError:
            pass
        except OSError:
            self.open = False
        *lines, self._half = data.split(b"\n")
        try:
            return [json.loads(line) for line in lines]
        except (ValueError, RecursionError):  # a stranger, who does not speak as a rank does
            self.open = False
            return []

    def close(self) -> None:
        self._peer.close()


def listen(near: str, ranks: int, port: int = 0) -> socket.socket:
    """`port` (0: a free one) on every address of this host, in the family in which the others look for it; `near` is its name."""
    family = socket.getaddrinfo(near, 0, type=socket.SOCK_STREAM)[0][0]
    listener = socket.create_server(("", port), family=family, backlog=ranks)
    listener.setblocking(False)
    return listener


def connect(address: str, port: int) -> Wire:
    """OSError where it cannot be reached."""
    peer = socket.create_connection((address, port), timeout=CONNECT_S)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Wire(peer)
