"""What a profiler's events say of the exchange in a script's steps."""

from __future__ import annotations

from typing import Any

import pytest

from hpcddp.worker.comm.exchange_profile import KERNELS, THREADS, length_us, mean_over_ranks, profiled_exchange, union


def event(category: str, name: str, begin_us: float, end_us: float) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": begin_us, "dur": end_us - begin_us, "args": {}}


STEPS = [event("user_annotation", f"ProfilerStep#{number}", 1000 * number, 1000 * number + 1000) for number in (1, 2)]


def on_gpu(step: int) -> list[dict[str, Any]]:
    """Gathered for 200 us, of which 150 are beside a product; scattered for 100 beside nothing."""
    at = 1000 * step
    return [
        event("kernel", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", at + 100, at + 300),
        event("kernel", "sm90_gemm_bf16", at + 150, at + 600),
        event("kernel", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", at + 700, at + 800),
        event("cpu_op", "aten::mm", at, at + 1000),
        event("gpu_memcpy", "Memcpy DtoD", at + 700, at + 800),
    ]


def on_cpu(step: int) -> list[dict[str, Any]]:
    """The call waits 100 us, the thread goes on for 200 more, of which 50 are beside a product."""
    at = 1000 * step
    return [
        event("cpu_op", "c10d::_allgather_base_", at, at + 100),
        event("user_annotation", "gloo:all_gather", at + 50, at + 300),
        event("cpu_op", "aten::mm", at + 250, at + 600),
    ]


def test_kernels_of_a_gpu() -> None:
    """Exposed is what no other kernel hides; the host's operators hide nothing there."""
    found = profiled_exchange([*STEPS, *on_gpu(1), *on_gpu(2)], 0.00015)
    assert found is not None
    assert (found.method, found.steps, found.step_clock_exposed_s) == (KERNELS, 2, 0.00015)
    assert [found.step_s, found.collectives_s, found.exposed_s] == pytest.approx([1e-3, 300e-6, 150e-6])
    assert dict(found.by_operation_s) == pytest.approx({"all_gather": 200e-6, "reduce_scatter": 100e-6})


def test_threads_of_gloo() -> None:
    """The call of a collective is of the exchange, too."""
    found = profiled_exchange([*STEPS, *on_cpu(1), *on_cpu(2)], None)
    assert found is not None
    assert found.method == THREADS
    assert [found.by_operation_s["all_gather"], found.collectives_s, found.exposed_s] == pytest.approx([250e-6, 300e-6, 250e-6])


@pytest.mark.parametrize("events", [[], STEPS, [*STEPS, event("cpu_op", "aten::mm", 1000, 1500)], on_cpu(1)])
def test_unknown_where_no_collective_is_there(events: list[dict[str, Any]]) -> None:
    """Another library's, or a driver that lets nobody profile: that is not an exchange of no time."""
    assert profiled_exchange(events, None) is None


def test_the_mean_over_ranks() -> None:
    """Unknown where one rank does not know."""
    one, other = (profiled_exchange([*STEPS, *events(1), *events(2)], None) for events in (on_cpu, on_gpu))
    assert one is not None
    assert other is not None
    assert mean_over_ranks([one, other]).exposed_s == pytest.approx(200e-6)  # type: ignore[union-attr]
    assert mean_over_ranks([one, None]) is None
    assert mean_over_ranks([]) is None


def test_times_apart() -> None:
    """Overlaps count once."""
    assert union([(5.0, 8.0), (0.0, 3.0), (2.0, 4.0)]) == [(0.0, 4.0), (5.0, 8.0)]
    assert length_us([(5.0, 8.0), (0.0, 3.0), (2.0, 4.0)]) == 7.0
