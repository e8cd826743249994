"""The benchmark of collectives: what comes out of real ranks, what is caught, and how fast a wire of a known rate is found."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from hpcddp.core.comm_record import CommSize, bus_share, disturbed, fit_link
from hpcddp.core.point import comm_point
from hpcddp.core.schema import encode
from hpcddp.worker import attempt as attempt_module
from hpcddp.worker.comm import collectives
from hpcddp.worker.comm.bench import bench_comm, impossible, too_slow
from hpcddp.worker.comm.collectives import REDUCE_SCATTER
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from tests.net.link import PAYLOAD_SHARE, Link
from tests.worker import forked, given

KIB, MIB = 2**10, 2**20
SIZES = (KIB, 48 * KIB, 768 * KIB, 9 * MIB)
"""All but the first are a whole number of float32 for each of three ranks."""
OPS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "send_recv")


def bench(sizes: tuple[int, ...], ops: tuple[str, ...] = OPS) -> Any:
    group = join(this_rank("local"), "cpu")
    found = bench_comm(group, sizes, ops)
    group.leave()
    return encode(found)


@pytest.mark.timed
@pytest.mark.parametrize("ranks", [1, 3])
def test_every_collective_is_timed_and_right(tmp_path: Path, ranks: int) -> None:
    found, *others = forked.values(tmp_path, ranks, bench, SIZES)
    assert all(other == found for other in others)
    assert tuple(found["ops"]) == OPS
    for op, measured in found["ops"].items():
        if (op, ranks) == ("send_recv", 1):
            assert measured["left_out"] == [{"bytes": size, "reason": "it needs two ranks"} for size in SIZES]
            continue
        assert [row["correct"] for row in measured["sizes"]] == [True] * len(SIZES)
        shared = 1020 if ranks == 3 and op in ("reduce_scatter", "all_gather") else KIB
        assert [row["bytes"] for row in measured["sizes"]] == [shared, *SIZES[1:]]
        for row in measured["sizes"]:
            assert 0 < row["time_min_s"] <= row["time_s"] <= row["time_max_s"]
            assert row["algbw_bytes_per_s"] == row["bytes"] / row["time_s"]
            assert row["busbw_bytes_per_s"] == pytest.approx(row["algbw_bytes_per_s"] * bus_share(op, ranks))
        (small, *_, large), found_fit = measured["sizes"], measured["fit"]
        if found_fit["bandwidth_bytes_per_s"] and "disturbed" not in found_fit["how"]:  # one rank alone sends nothing
            for row in (small, large):
                fitted_s = found_fit["latency_s"] + row["bytes"] / found_fit["bandwidth_bytes_per_s"]
                assert fitted_s == pytest.approx(row["time_min_s"], rel=1e-3)


def test_bus_bandwidth_is_nccl_tests() -> None:
    """4 ranks: an all-reduce moves 1.5 messages over each link, either half of it 0.75, a broadcast one; one rank none."""
    assert [bus_share(op, 4) for op in OPS] == [1.5, 0.75, 0.75, 1.0, 1.0]
    assert [bus_share(op, 1) for op in OPS[:3]] == [0, 0, 0]


def test_fit_by_hand() -> None:
    """20 us and 10 GB/s are had again from every size's least time; sizes between 4 KiB and 4 MiB have no say."""
    least_s = {size: 20e-6 + size / 1e10 for size in (KIB, 2 * KIB, 4 * KIB, 4 * MIB, 8 * MIB, 16 * MIB)}
    found = fit_link({**least_s, 256 * KIB: 60e-6})
    assert found.latency_s == pytest.approx(20e-6, rel=1e-6)
    assert found.bandwidth_bytes_per_s == pytest.approx(1e10, rel=1e-6)


def test_where_no_size_says_the_fit_is_unknown() -> None:
    assert (fit_link({256 * KIB: 1.0}).latency_s, fit_link({256 * KIB: 1.0}).bandwidth_bytes_per_s) == (None, None)
    assert (fit_link({KIB: 1e-5}).latency_s, fit_link({KIB: 1e-5}).bandwidth_bytes_per_s) == (1e-5, None)
    assert (fit_link({4 * MIB: 2.0}).latency_s, fit_link({4 * MIB: 2.0}).bandwidth_bytes_per_s) == (None, 2 * MIB)
    assert "no size from 4 MiB on" in fit_link({KIB: 1e-5}).how


def test_disturbed_sizes_have_no_say() -> None:
    """3.1 ms up to 4 KiB where 64 KiB take 0.37: that is no latency. One of two is left out, the other has it."""
    larger_s = {64 * KIB: 0.37e-3, 4 * MIB: 4e-3, 16 * MIB: 16e-3}
    both = fit_link({KIB: 3.1e-3, 4 * KIB: 3.1e-3, **larger_s})
    assert both.latency_s is None
    assert both.bandwidth_bytes_per_s == pytest.approx(4 * MIB / 4e-3, rel=0.05)
    assert both.how.endswith("without 2 that were disturbed")
    assert disturbed({KIB: 3.1e-3, 4 * KIB: 0.3e-3, **larger_s}) == [KIB]
    assert fit_link({KIB: 3.1e-3, 4 * KIB: 0.3e-3, **larger_s}).latency_s == pytest.approx(0.3e-3, rel=0.02)
    assert disturbed({KIB: 0.5e-3, **larger_s}) == []


def test_sizes_are_left_out_with_a_reason() -> None:
    known: dict[str, Any] = dict.fromkeys(("time_s", "time_min_s", "time_max_s"), 0.3)
    row = CommSize(bytes=MIB, calls=1, **known, algbw_bytes_per_s=None, busbw_bytes_per_s=None, correct=True)
    assert impossible("all_gather", KIB, 300, 2**40) == "too small to be shared among 300 ranks"
    assert "3 messages of 1 GiB need more than the 3000 MiB" in str(impossible("all_reduce", 2**30, 2, 3000 * MIB))
    assert impossible("all_reduce", 2**30, 2, 3072 * MIB) is None
    assert too_slow("all_reduce", 2 * MIB, [row], 1.0) is None
    assert too_slow("all_reduce", 4 * MIB, [row], 1.0) == "a call would take about 1.20 s, above the limit of 1 s"
    assert too_slow("all_reduce", 2 * MIB, [row], 41.0) == "the 40 s for all_reduce were used up"
    assert too_slow("all_reduce", KIB, [], 0.0) is None


def of_small_sizes(fault: str, rank: int) -> None:
    """With something wrong in the collectives of rank 1, or one that gloo does not support."""
    vars(attempt_module)["bench_comm"] = lambda group: bench_comm(group, (KIB, 4 * KIB))
    plain = vars(dist)[fault]

    def wrong(tensor: Any, *arguments: Any, **options: Any) -> Any:
        done = plain(tensor, *arguments, **options)
        if tensor.numel() == KIB and rank == 1:
            tensor[7] += 1
        return done

    def unsupported(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError(f"ProcessGroupGloo does not support {fault}")

    vars(dist)[fault] = unsupported if fault == REDUCE_SCATTER else wrong


@pytest.mark.dear
def test_a_wrong_result_is_caught(tmp_path: Path) -> None:
    found = forked.ran(tmp_path, comm_point(given.point(2)), functools.partial(of_small_sizes, "broadcast"))
    assert [row["correct"] for row in found.read("comm.json")["ops"]["broadcast"]["sizes"]] == [True, False]
    assert found.failed == {"collectives correct": "wrong in 1 of 10 sizes, first in broadcast of 4 KiB on rank 1"}
    assert found.read("launch.json")["gates"] == list(found.gates)
    assert found.outcomes[0].value["gates_passed"] is False


@pytest.mark.dear
def test_what_the_backend_lacks_is_recorded(tmp_path: Path) -> None:
    ran = forked.ran(tmp_path, comm_point(given.point(2)), functools.partial(of_small_sizes, REDUCE_SCATTER))
    found = ran.read("comm.json")["ops"]
    lacking = found["reduce_scatter"]
    assert (lacking["sizes"], lacking["not_supported"]) == ([], f"ProcessGroupGloo does not support {REDUCE_SCATTER}")
    assert (len(found["all_gather"]["sizes"]), ran.failed) == (2, {})
    assert ran.end["ranks"] == [{"rank": 0, "host": "node0"}, {"rank": 1, "host": "node0"}]


def test_messages_longer_than_a_slice() -> None:
    data = collectives.filled(torch.device("cpu"), collectives.SLICE + 3, 2)
    assert collectives.is_filled(data, 2)
    data[-1] += 1
    assert not collectives.is_filled(data, 2)


def test_the_rate_of_a_wire_is_recovered(link: Link, tmp_path: Path) -> None:
    """A busy machine is slower, never faster: the best attempt counts."""
    link.set_rate(300)
    expected = 300e6 / 8 * PAYLOAD_SHARE
    ratios = []
    for attempt in range(3):
        found, _ = link.values(tmp_path / f"{attempt}", bench, (4 * MIB, 8 * MIB), ("all_reduce", "send_recv"))
        reduced, sent = (found["ops"][op]["fit"]["bandwidth_bytes_per_s"] / expected for op in ("all_reduce", "send_recv"))
        ratios.append(f"{reduced:.4f} {sent:.4f}")
        if math.isclose(reduced, 1, rel_tol=0.02) and math.isclose(sent, 1, rel_tol=0.05):
            return
    pytest.fail(f"{ratios} of the payload rate")
