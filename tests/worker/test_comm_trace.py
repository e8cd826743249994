"""What a trace says, on events whose times are told (in us, as Chrome's)."""

from __future__ import annotations

from typing import Any

import pytest

from hpcddp.worker.comm.trace import has_kernels, profiled_steps

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
