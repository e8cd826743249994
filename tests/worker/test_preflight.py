"""Preflight by real ranks over gloo: what is measured, recorded, and left for the job's script."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.preflight import PreflightRecord
from hpcddp.core.run_root import Study
from hpcddp.core.schema import decode_record
from hpcddp.worker import preflight
from tests.worker import forked, given


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks are forked from here: shorter parts, smaller messages."""
    monkeypatch.setattr(preflight, "PART_S", 0.05)
    monkeypatch.setattr(preflight, "SIDES", (64, 128))
    monkeypatch.setattr(preflight, "COPIED_BYTES", {"cpu": 2**20})
    monkeypatch.setattr(preflight, "MESSAGE_BYTES", {"cpu": 2**16})


def run_on(study: Path, world: int, nodes: int, **variables: str) -> tuple[PreflightRecord, list[Any]]:
    """The record, and what each rank returned."""
    spec = spec_to_dict(given.job(study, given.point(world, nodes=nodes)))
    found = forked.values(study / "output", world, in_rank, spec, variables, nodes=nodes)
    plain = json.loads(Study(study).preflight_file("7", 0).read_text())
    return decode_record(PreflightRecord, plain), found


def in_rank(spec: dict[str, Any], variables: dict[str, str]) -> dict[str, Any]:
    os.environ.update(variables)
    torch.set_num_threads(1)
    return preflight.run_preflight(spec)


@pytest.mark.timed
def test_every_node_is_measured_and_recorded(tmp_path: Path) -> None:
    record, returned = run_on(tmp_path, 6, 3)
    assert (record.job, record.restart, record.device, record.hosts) == ("7", 0, "cpu", ("node0", "node1", "node2"))
    for each in record.ranks:
        assert all((each.matrix_flops_per_s, each.memory_bytes_per_s, each.node_bytes_per_s, each.neighbour_bytes_per_s))
        assert (each.copy_bytes_per_s, each.problems) == (None, ())
    assert record.excluded == ()
    assert returned[0]["ranks"][5]["host"] == "node2"
    assert returned[1:] == [{}] * 5


def test_a_single_rank_has_nobody_to_talk_to(tmp_path: Path) -> None:
    record, _ = run_on(tmp_path, 1, 1)
    (only,) = record.ranks
    assert only.matrix_flops_per_s
    assert (only.node_bytes_per_s, only.neighbour_bytes_per_s) == (None, None)


@pytest.mark.timed
def test_a_slow_node_is_left_out_where_there_is_a_spare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "local_rate", _slow_on_node1)
    hosts = tmp_path / "hosts"
    record, _ = run_on(tmp_path, 3, 3, HPCDDP_SPARE_NODES="1", HPCDDP_HOSTS=str(hosts))
    assert record.slow[0].host == "node1"
    assert record.excluded == ("node1",)
    assert hosts.read_text() == "node0\nnode2\n"


def _slow_on_node1(work: float, call: Any, device: Any, for_s: float) -> float:
    return 1.0 if os.environ["SLURMD_NODENAME"] == "node1" else 10.0


def test_what_cannot_be_measured_is_said_and_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "COPIED_BYTES", {"cpu": 2**60})
    record, _ = run_on(tmp_path, 2, 2)
    assert [each.memory_bytes_per_s for each in record.ranks] == [None, None]
    assert record.ranks[1].problems[0].startswith("rank 1 on node1: memory_bytes_per_s: ")
    assert record.ranks[1].neighbour_bytes_per_s


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 8, 33])
def test_each_node_meets_the_one_before_and_the_one_behind_it(nodes: int) -> None:
    rounds = preflight.neighbour_rounds(nodes)
    for each in rounds:
        assert len({node for pair in each for node in pair}) == 2 * len(each)
    pairs = [pair for each in rounds for pair in each]
    met = {node: sum(node in pair for pair in pairs) for node in range(nodes)}
    assert set(met.values()) == ({1} if nodes == 2 else {2})
    assert all((second - first) % nodes == 1 for first, second in pairs)


def test_a_single_node_has_no_neighbour() -> None:
    assert preflight.neighbour_rounds(1) == []


def test_a_rate_is_that_of_the_median_call(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses_s = iter([0.2, 0.01, 0.1, *[0.01] * 100])
    monkeypatch.setattr("time.perf_counter", clock := _Clock())
    rate = preflight.local_rate(5.0, lambda: clock.pass_s(next(pauses_s)), torch.device("cpu"), 0.2)
    assert rate == pytest.approx(500.0)


class _Clock:
    """A clock that passes when it is told to."""

    def __init__(self) -> None:
        self._now_s = time.perf_counter()

    def __call__(self) -> float:
        return self._now_s

    def pass_s(self, seconds: float) -> None:
        self._now_s += seconds
