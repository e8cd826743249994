"""Ranks from the launcher's variables, how they meet, and what is said when they do not."""

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

from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import spec_to_dict
from hpcddp.worker.main import run
from hpcddp.worker.master import NoAddressError, check_address, ports
from hpcddp.worker.ranks import Rank, this_rank
from hpcddp.worker.rendezvous import join
from tests.worker import forked, given

SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NTASKS": "16",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_NNODES": "4",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_JOB_ID": "4711",
    "SLURMD_NODENAME": "gn02",
    "MASTER_ADDR": "gn01",
    "MASTER_PORT": "14711",
}

LOCAL = {
    "SUBMITIT_LOCAL_GLOBALID": "1",
    "SUBMITIT_LOCAL_LOCALID": "1",
    "SUBMITIT_LOCAL_NTASKS": "2",
    "SUBMITIT_LOCAL_JOB_NUM_NODES": "1",
    "HPCDDP_JOB": "local-3",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "20001",
}


def test_slurms_step_counts_not_its_job() -> None:
    rank = this_rank("slurm", SLURM)
    assert (rank.rank, rank.local_rank, rank.world, rank.nodes, rank.ranks_per_node) == (5, 1, 8, 2, 4)
    assert (rank.job, rank.restart, rank.host) == ("4711", 0, "gn02")
    assert (rank.master_addr, rank.master_port) == ("gn01", 14711)
    assert this_rank("slurm", {**SLURM, "SLURM_RESTART_COUNT": "2"}).restart == 2


def test_ranks_of_torchrun() -> None:
    own = {"RANK": "6", "LOCAL_RANK": "2", "WORLD_SIZE": "8", "GROUP_WORLD_SIZE": "2", "MASTER_PORT": "29400"}
    env = {**SLURM, **own, "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": "True", "SLURM_RESTART_COUNT": "1"}
    rank = this_rank("slurm", env)
    assert (rank.rank, rank.local_rank, rank.world, rank.nodes, rank.ranks_per_node) == (6, 2, 8, 2, 4)
    assert (rank.job, rank.restart, rank.launcher, rank.master_port) == ("4711", 1, "torchrun", 29400)
    assert rank.store_is_there
    assert not this_rank("slurm", {**env, "TORCHELASTIC_USE_AGENT_STORE": "False"}).store_is_there
    assert this_rank("slurm", SLURM).launcher == "direct"


def test_local_ranks_inside_a_slurm_job() -> None:
    """The backend decides which variables count: a local run may be started from within an allocation."""
    rank = this_rank("local", {**SLURM, "SLURM_RESTART_COUNT": "2", **LOCAL})
    assert (rank.rank, rank.world, rank.job, rank.restart) == (1, 2, "local-3", 0)


@pytest.mark.parametrize("name", ["SLURM_PROCID", "SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT"])
def test_a_missing_variable_is_named(name: str) -> None:
    env = {key: value for key, value in SLURM.items() if key != name}
    with pytest.raises(HpcddpError, match=rf"{name}.* not set on gn02.*srun"):
        this_rank("slurm", env)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("SLURM_STEP_NUM_TASKS", "7", "7 ranks on 2 nodes"), ("SLURM_PROCID", "$SLURM_PROCID", r"rank is '\$SLURM_PROCID'")],
)
def test_an_odd_value_is_named(name: str, value: str, words: str) -> None:
    with pytest.raises(HpcddpError, match=words):
        this_rank("slurm", {**SLURM, name: value})


def test_the_gpu_of_a_rank() -> None:
    assert this_rank("slurm", SLURM).gpu == 1
    assert this_rank("slurm", SLURM, "zero").gpu == 0
    own = {"RANK": "6", "LOCAL_RANK": "2", "WORLD_SIZE": "8", "GROUP_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}
    assert this_rank("slurm", {**SLURM, **own}, "zero").gpu == 2


def wait_for_peers(rank: int) -> None:
    os.environ |= {"SUBMITIT_LOCAL_NTASKS": "2", "SUBMITIT_LOCAL_GLOBALID": str(rank)}
    join(this_rank("local"), "cpu", timedelta(seconds=1))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_waits_in_vain(tmp_path: Path, rank: int) -> None:
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
    spec = given.job(tmp_path, given.point(2))
    (outcome,) = forked.ranks(tmp_path / "output", 1, unresolvable, rank, spec_to_dict(spec), timeout_s=20.0)
    assert outcome.code == 1
    end = json.loads((spec.attempt_dir("7", 0) / "end.json").read_text())
    assert end["state"] == "failed"
    assert end["reason"].startswith(f"rank {rank} on node0: MASTER_ADDR {NOWHERE} does not resolve on node0 (")
    assert f"`getent hosts {NOWHERE}`" in end["reason"]


@pytest.mark.parametrize(("answers", "lookups"), [([socket.EAI_AGAIN], 2), ([socket.EAI_AGAIN] * 3, 3), ([socket.EAI_NONAME], 1)])
def test_a_name_server_that_is_busy(monkeypatch: pytest.MonkeyPatch, answers: list[int], lookups: int) -> None:
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
    with forked.held_port() as port:
        stranger = Stranger(port, says)
        try:
            outcomes = forked.ranks(tmp_path, 3, meet_beside, port)
        finally:
            stranger.close()
    assert [outcome.code for outcome in outcomes] == [0, 0, 0], "\n".join(outcome.output for outcome in outcomes)
    assert outcomes[0].value == [0, 1, 2]
    assert f"MASTER_PORT {port} is in use on node0; the rendezvous uses {ports(port)[1]}" in outcomes[0].output


def test_both_ports_are_taken(tmp_path: Path) -> None:
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
