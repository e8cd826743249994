"""What a trace says, on events whose times are told (in us, as Chrome's).

What a profiler's events say of the exchange in a script's steps.
"""

from __future__ import annotations

from typing import Any

import pytest

from hpcddp.worker.comm.trace import (
    COLLECTIVE_KERNELS,
    THREADS,
    has_kernels,
    length_us,
    mean_exchange,
    profiled_exchange,
    profiled_steps,
    union,
)

NODE = "autograd::engine::evaluate_function: "


def event(cat: str, name: str, start: float, end: float, correlation: int | None = None) -> dict[str, Any]:
    args = {} if correlation is None else {"correlation": correlation}
    return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": end - start, "args": args}


def launched(name: str, launch: float, start: float, end: float, number: int) -> list[dict[str, Any]]:
    """A kernel and the call that launched it."""
    return [
        event("cuda_runtime", "cudaLaunchKernel", launch, launch + 1, number),
        event("kernel", name, start, end, number),
    ]


def test_operators_on_a_processor() -> None:
    """Backward's functions are summed; the tail goes on to the end of the last copy of what the all-reduces brought."""
    events = [
        event("user_annotation", "step", 1000, 2000),
        event("cpu_op", "aten::conv2d", 1000, 1100),
        event("cpu_op", NODE + "ConvolutionBackward0", 1100, 1300),
        event("cpu_op", NODE + "AccumulateGrad", 1310, 1400),
        event("user_annotation", "gloo:all_reduce", 1250, 1900),
        event("cpu_op", "torch.distributed.ddp.reducer::copy_bucket_to_grad", 1901, 1950),
        event("cpu_op", NODE + "Elsewhere", 2100, 2200),
        {"ph": "i", "name": "no duration"},
    ]
    (step,) = profiled_steps(events, "step")
    assert step.backward_s == pytest.approx(290e-6)
    assert step.exposed_s == pytest.approx(550e-6)


def test_steps_come_in_order_and_without_exchange_nothing_is_exposed() -> None:
    """Steps of another name are not theirs."""
    events = [
        event("user_annotation", "step", 2000, 3000),
        event("user_annotation", "step", 0, 1000),
        event("user_annotation", "other", 4000, 5000),
        event("cpu_op", NODE + "A", 2100, 2400),
        event("cpu_op", NODE + "A", 100, 300),
        event("cpu_op", NODE + "A", 4100, 4900),
    ]
    assert [step.backward_s for step in profiled_steps(events, "step")] == pytest.approx([200e-6, 300e-6])
    assert [step.exposed_s for step in profiled_steps(events, "step")] == [0.0, 0.0]


def test_kernels_on_a_gpu() -> None:
    """Kernels count by what launched them, not by when they ran; NCCL's and those after backward are the exchange."""
    events = [
        event("user_annotation", "step", 0, 1000),
        event("cpu_op", NODE + "ConvolutionBackward0", 100, 200),
        event("cpu_op", NODE + "AccumulateGrad", 210, 300),
        *launched("forward", 50, 60, 400, 1),
        *launched("convolution_backward", 150, 400, 700, 2),
        *launched("multiply", 215, 700, 750, 3),
        *launched("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 220, 700, 1200, 4),
        *launched("copy_back", 400, 1200, 1230, 5),
        *launched("next_step", 1100, 1300, 1400, 6),
    ]
    assert has_kernels(events)
    assert not has_kernels([each for each in events if each["cat"] != "kernel"])
    (step,) = profiled_steps(events, "step")
    assert step.backward_s == pytest.approx(350e-6)
    assert step.exposed_s == pytest.approx(480e-6)


def profiled_event(category: str, name: str, begin_us: float, end_us: float) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": begin_us, "dur": end_us - begin_us, "args": {}}


STEPS = [profiled_event("user_annotation", f"ProfilerStep#{number}", 1000 * number, 1000 * number + 1000) for number in (1, 2)]


def on_gpu(step: int) -> list[dict[str, Any]]:
    """Gathered for 200 us, of which 150 are beside a product; scattered for 100 beside nothing."""
    at = 1000 * step
    return [
        profiled_event("kernel", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", at + 100, at + 300),
        profiled_event("kernel", "sm90_gemm_bf16", at + 150, at + 600),
        profiled_event(
            "kernel", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", at + 700, at + 800
        ),
        profiled_event("cpu_op", "aten::mm", at, at + 1000),
        profiled_event("gpu_memcpy", "Memcpy DtoD", at + 700, at + 800),
    ]


def on_cpu(step: int) -> list[dict[str, Any]]:
    """The call waits 100 us, the thread goes on for 200 more, of which 50 are beside a product."""
    at = 1000 * step
    return [
        profiled_event("cpu_op", "c10d::_allgather_base_", at, at + 100),
        profiled_event("user_annotation", "gloo:all_gather", at + 50, at + 300),
        profiled_event("cpu_op", "aten::mm", at + 250, at + 600),
    ]


def test_kernels_of_a_gpu() -> None:
    """Exposed is what no other kernel hides; the host's operators hide nothing there."""
    found = profiled_exchange([*STEPS, *on_gpu(1), *on_gpu(2)], 0.00015)
    assert found is not None
    assert (found.method, found.steps, found.step_clock_exposed_s) == (COLLECTIVE_KERNELS, 2, 0.00015)
    assert [found.step_s, found.collectives_s, found.exposed_s] == pytest.approx([1e-3, 300e-6, 150e-6])
    assert dict(found.by_operation_s) == pytest.approx({"all_gather": 200e-6, "reduce_scatter": 100e-6})


def test_threads_of_gloo() -> None:
    """The call of a collective is of the exchange, too."""
    found = profiled_exchange([*STEPS, *on_cpu(1), *on_cpu(2)], None)
    assert found is not None
    assert found.method == THREADS
    assert [found.by_operation_s["all_gather"], found.collectives_s, found.exposed_s] == pytest.approx([250e-6, 300e-6, 250e-6])


@pytest.mark.parametrize("events", [[], STEPS, [*STEPS, profiled_event("cpu_op", "aten::mm", 1000, 1500)], on_cpu(1)])
def test_unknown_where_no_collective_is_there(events: list[dict[str, Any]]) -> None:
    """Another library's, or a driver that lets nobody profile: that is not an exchange of no time."""
    assert profiled_exchange(events, None) is None


def test_the_mean_over_ranks() -> None:
    """Unknown where one rank does not know."""
    one, other = (profiled_exchange([*STEPS, *events(1), *events(2)], None) for events in (on_cpu, on_gpu))
    assert one is not None
    assert other is not None
    assert mean_exchange([one, other]).exposed_s == pytest.approx(200e-6)  # type: ignore[union-attr]
    assert mean_exchange([one, None]) is None
    assert mean_exchange([]) is None


def test_times_apart() -> None:
    """Overlaps count once."""
    assert union([(5.0, 8.0), (0.0, 3.0), (2.0, 4.0)]) == [(0.0, 4.0), (5.0, 8.0)]
    assert length_us([(5.0, 8.0), (0.0, 3.0), (2.0, 4.0)]) == 7.0
