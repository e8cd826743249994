"""The link between two namespaces is as fast as it says, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.net.link import ADDRESSES, PAYLOAD_SHARE, Link, throttled_link

pytestmark = pytest.mark.timed

PORT = 5000
DRAIN_BYTES = 2 * 2**20
HOLDER = """
import time
from tests.net.link import throttled_link
with throttled_link(1) as link:
    print(*link.namespaces, flush=True)
    time.sleep(60)
"""
ATTEMPTS = 3
"""A busy machine makes a link slower, never faster: the best attempt counts."""


@pytest.mark.parametrize("mbit", [100, 1000])
def test_plain_tcp_gets_the_payload_share_of_the_rate(link: Link, tmp_path: Path, mbit: int) -> None:
    """Bytes per second of a socket are rate x 1448/1514 within 2 %, once the token bucket is empty."""
    link.set_rate(mbit)
    expected = mbit * 1e6 / 8 * PAYLOAD_SHARE
    rates = []
    for attempt in range(ATTEMPTS):
        rates.append(link.values(tmp_path / f"{attempt}", _transfer, round(expected * 0.6))[1])
        if abs(rates[-1] / expected - 1) < 0.02:
            return
    pytest.fail(f"{[f'{rate / expected:.4f}' for rate in rates]} of the payload rate of {mbit} Mbit/s")


def test_the_rate_may_change_and_go(link: Link, tmp_path: Path) -> None:
    """None lifts the limit; a rate set afterwards holds again."""
    link.set_rate(None)
    assert link.values(tmp_path / "free", _transfer, 2**24)[1] > 50e6
    link.set_rate(20)
    assert link.values(tmp_path / "slow", _transfer, 2**20)[1] < 2.6e6


def test_ranks_meet_through_the_link(link: Link, tmp_path: Path) -> None:
    """Each rank is at its own end: it has that end's address, and the variables gloo and the rendezvous need."""
    found = link.values(tmp_path, _whereabouts)
    assert found == [(ADDRESSES[0], "wire", ADDRESSES[0]), (ADDRESSES[1], "wire", ADDRESSES[0])]


def test_nothing_is_left_after_a_failure() -> None:
    """Namespaces and interfaces of a link are gone when its block ends, by an error too."""
    interfaces, namespaces = _interfaces(), _namespaces()
    with contextlib.suppress(ZeroDivisionError), throttled_link(100) as link:
        assert set(link.namespaces) <= _namespaces() - namespaces
        raise ZeroDivisionError
    assert not set(link.namespaces) & _namespaces()
    assert _interfaces() == interfaces


def test_a_link_whose_process_was_killed_is_removed_by_the_next(link: Link) -> None:
    """Nobody else can: SIGKILL leaves no time to clear up."""
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        left = set(holder.stdout.readline().split())
        holder.kill()
    assert left <= _namespaces()
    with throttled_link(1):
        assert not left & _namespaces()
    assert set(link.namespaces) <= _namespaces()


def _transfer(size_bytes: int) -> float | None:
    """Rank 0 sends DRAIN_BYTES and `size_bytes`; rank 1 says how many bytes per second the latter came at."""
    if os.environ["SUBMITIT_LOCAL_GLOBALID"] == "0":
        with _connected() as out:
            out.sendall(bytes(DRAIN_BYTES + size_bytes))
        return None
    with socket.create_server((ADDRESSES[1], PORT)) as server:
        into, _ = server.accept()
        with into:
            drained = _receive(into, DRAIN_BYTES)
            start = time.perf_counter()
            received = _receive(into, DRAIN_BYTES + size_bytes - drained)
            return received / (time.perf_counter() - start)


def _connected() -> socket.socket:
    give_up_at = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection((ADDRESSES[1], PORT))
        except ConnectionRefusedError:
            assert time.monotonic() < give_up_at
            time.sleep(0.01)


def _receive(source: socket.socket, at_least_bytes: int) -> int:
    received, buffer = 0, bytearray(2**16)
    while received < at_least_bytes:
        got = source.recv_into(buffer)
        assert got, f"the sender stopped after {received} of {at_least_bytes} bytes"
        received += got
    return received


def _whereabouts() -> tuple[str, str, str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        peer = ADDRESSES[1 - int(os.environ["SUBMITIT_LOCAL_GLOBALID"])]
        probe.connect((peer, PORT))
        own: str = probe.getsockname()[0]
    return own, os.environ["GLOO_SOCKET_IFNAME"], os.environ["MASTER_ADDR"]


def _namespaces() -> set[str]:
    return {line.split()[0] for line in _lines("ip", "netns", "list")}


def _interfaces() -> set[str]:
    return {line.split(":")[1] for line in _lines("ip", "-o", "link")}


def _lines(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
