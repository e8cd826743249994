"""How ranks meet, and what is said when they do not."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hpcddp.core.jobspec import spec_to_dict
from hpcddp.worker.main import run
from hpcddp.worker.master import NoAddressError, check_address, ports
from hpcddp.worker.ranks import Rank, this_rank
from hpcddp.worker.rendezvous import join
from tests.worker import forked, given


def wait_for_peers(rank: int) -> None:
    os.environ |= {"SUBMITIT_LOCAL_NTASKS": "2", "SUBMITIT_LOCAL_GLOBALID": str(rank)}
    join(this_rank("local"), "cpu", timedelta(seconds=1))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_waits_in_vain(tmp_path: Path, rank: int) -> None:
    """Who waited, for whom and where: rank 0 for the others, the others for rank 0."""
    (outcome,) = forked.ranks(tmp_path, 1, wait_for_peers, rank)
    assert outcome.code == 1
    assert f"HpcddpError: rank {rank} of 2 on node0 could not meet the others at MASTER_ADDR 127.0.0.1" in outcome.output


NOWHERE = "-no-such-node"
"""No name server is asked for a name that begins so: one that is away takes half a minute."""


def unresolvable(rank: int, spec: dict[str, Any]) -> Any:
    os.environ |= {"SUBMITIT_LOCAL_NTASKS": "2", "SUBMITIT_LOCAL_GLOBALID": str(rank), "MASTER_ADDR": NOWHERE}
    return run(spec)


@pytest.mark.parametrize("rank", [0, 1])
def test_an_address_that_does_not_resolve(tmp_path: Path, rank: int) -> None:
    """Said at once by any rank that does not find it: the others might wait for it until the job's time limit."""
    spec = given.job(tmp_path, given.point(2))
    (outcome,) = forked.ranks(tmp_path / "output", 1, unresolvable, rank, spec_to_dict(spec), timeout_s=20.0)
    assert outcome.code == 1
    end = json.loads((spec.attempt_dir("7", 0) / "end.json").read_text())
    assert end["state"] == "failed"
    assert end["reason"].startswith(f"rank {rank} on node0: MASTER_ADDR {NOWHERE} does not resolve on node0 (")
    assert f"`getent hosts {NOWHERE}`" in end["reason"]


@pytest.mark.parametrize(("answers", "lookups"), [([socket.EAI_AGAIN], 2), ([socket.EAI_AGAIN] * 3, 3), ([socket.EAI_NONAME], 1)])
def test_a_name_server_that_is_busy(monkeypatch: pytest.MonkeyPatch, answers: list[int], lookups: int) -> None:
    """Is asked again, a few times; one that does not know the name is not."""
    calls = list[int]()

    def resolve(*_: Any, **__: Any) -> list[Any]:
        calls.append(1)
        if len(calls) <= len(answers):
            raise socket.gaierror(answers[len(calls) - 1], "no answer")
        return []

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr("hpcddp.worker.master.AGAIN_S", 0.0)
    rank = Rank(rank=1, local_rank=0, world=2, nodes=2, job="7", restart=0, host="gn02", master_addr="gn01", master_port=1)
    with contextlib.nullcontext() if lookups > len(answers) else pytest.raises(NoAddressError, match="no answer"):
        check_address(rank)
    assert len(calls) == lookups


class Stranger:
    """Another program that listens at a port: silent, rude, or talkative."""

    def __init__(self, port: int, says: bytes | None) -> None:
        self._listener = socket.create_server(("", port))
        self._says, self._peers = says, list[socket.socket]()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            if self._says is None:
                peer.close()
                continue
            self._peers.append(peer)
            peer.sendall(self._says)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for each in (self._listener, *self._peers):
            each.close()


def meet_beside(port: int) -> list[int]:
    os.environ["MASTER_PORT"] = str(port)
    group = join(this_rank("local"), "cpu", timedelta(seconds=60))
    found = group.gather("who", group.rank.rank)
    group.leave()
    return found


@pytest.mark.parametrize("says", [None, b"", b"SSH-2.0-OpenSSH_9.2\r\n", b'["hpcddp", "8", 0, 3, 1]\n'])
def test_a_port_that_is_taken(tmp_path: Path, says: bytes | None) -> None:
    """The ranks meet at the second one, whatever the stranger does with those who connect: another job's ranks do so, too."""
    with forked.held_port() as port:
        stranger = Stranger(port, says)
        try:
            outcomes = forked.ranks(tmp_path, 3, meet_beside, port)
        finally:
            stranger.close()
    assert [outcome.code for outcome in outcomes] == [0, 0, 0], "\n".join(outcome.output for outcome in outcomes)
    assert outcomes[0].value == [0, 1, 2]
    assert f"MASTER_PORT {port} is taken on node0: the ranks meet at {ports(port)[1]}" in outcomes[0].output


def test_both_ports_are_taken(tmp_path: Path) -> None:
    """Then it is an error of rank 0."""
    with forked.held_port() as port:
        strangers = [Stranger(each, None) for each in ports(port)]
        try:
            outcomes = forked.ranks(tmp_path, 1, meet_beside_nobody, port)
        finally:
            for stranger in strangers:
                stranger.close()
    assert f"MASTER_PORT {port}: " in outcomes[0].output
    assert "Address already in use" in outcomes[0].output


def meet_beside_nobody(port: int) -> None:
    os.environ |= {"SUBMITIT_LOCAL_NTASKS": "2", "MASTER_PORT": str(port)}
    join(this_rank("local"), "cpu", timedelta(seconds=1))


def test_the_second_port_is_far_from_the_first() -> None:
    """Jobs that are submitted one after the other have ports one after the other; both are where job scripts choose them."""
    seconds = {ports(first)[1] for first in range(10_000, 30_000)}
    assert seconds == set(range(10_000, 30_000))
    assert all(abs(ports(first)[1] - first) > 9_000 for first in range(10_000, 30_000))
    assert 10_000 <= ports(65_535)[1] < 30_000
