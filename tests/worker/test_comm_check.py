"""The cross-check of communication: real ranks, then its arithmetic and its traces on times that the test gives."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hpcddp.core.attempt_records import CommCheck
from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.schema import encode
from hpcddp.worker.comm.check import NEAR, SMALL, Pair, Profiled, Timed, blind, check_comm, compare_views, undisturbed, worst
from hpcddp.worker.comm.hook import time_buckets
from hpcddp.worker.comm.trace import (
    COLLECTIVE_KERNELS,
    THREADS,
    ProfiledStep,
    has_kernels,
    length_us,
    mean_exchange,
    profiled_exchange,
    profiled_steps,
    union,
)
from hpcddp.worker.main import run
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.timing.clock import HostClock
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.feeds import ResidentFeed
from hpcddp.worker.training.trainer import make_trainer
from tests.net.link import PAYLOAD_SHARE, Link
from tests.worker import forked, given

MBIT = 200
GRADIENT_BYTES = 1_686_560
"""Of the MNIST CNN: with two ranks each sends as much."""


@pytest.fixture(scope="module")
def checked(link: Link, tmp_path_factory: pytest.TempPathFactory) -> forked.Ran:
    link.set_rate(MBIT)
    study = tmp_path_factory.mktemp("checked")
    spec = given.job(study, given.point(2, measure={"comm": "check"}))
    summaries = link.values(study / "output", run, spec_to_dict(spec))
    assert summaries[0]["gates_passed"] is True
    return forked.Ran(spec.attempt_dir(forked.JOB, 0), [])


def test_the_record_says_whether_the_views_agree(checked: forked.Ran) -> None:
    found = checked.end["comm_check"]
    near = pytest.approx(found["profiled_hook_exposed_s"], rel=NEAR, abs=SMALL * found["sync_step_s"])
    assert found["profiler_exposed_s"] == near
    assert found["sentence"].startswith("the measurements agree" if found["closes"] else "the communication measurements")
    assert (found["pairs"], found["rank"] in {0, 1}) == (20, True)
    assert 0 <= found["discarded"] < 20
    assert 0 < found["profiled_pairs"] <= 12


def test_the_exchange_takes_what_the_network_needs(checked: forked.Ran) -> None:
    found = checked.end["comm_check"]
    sending_s = GRADIENT_BYTES * 8 / (MBIT * 1e6 * PAYLOAD_SHARE)
    assert found["sync_step_s"] > 0.9 * sending_s
    assert found["difference_s"] > 0.3 * sending_s


def test_steps_of_the_check_are_in_no_file(checked: forked.Ran) -> None:
    assert checked.end["steps"] == len(checked.rows(0)) == 6
    buckets = (checked.attempt / "ranks" / "00000.buckets.csv").read_text().splitlines()
    assert checked.end["ranks"][0]["bucket_rows"] == len(buckets) - 1
    assert buckets[-1].startswith("5,")


@pytest.mark.dear
def test_the_model_stays_as_training_left_it(tmp_path: Path) -> None:
    assert forked.in_group(tmp_path, 2, _state_before_and_after) == [True, True]


def _state_before_and_after(group: ProcessGroup) -> bool:
    rank = group.rank
    source = given.mnist(8)
    workload = given.workload(model="tests.worker.test_comm_check:with_batchnorm")
    trainer = make_trainer(workload, source, group.device, rank.rank)
    timer = StepTimer(HostClock())
    assert trainer.ddp
    time_buckets(trainer.ddp, timer)
    feed = ResidentFeed(source.batch(torch.arange(4 * rank.rank, 4 * rank.rank + 4)), given.plan(1))
    trainer.step(feed.next(timer), timer.mark)
    before = copy.deepcopy([trainer.module.state_dict(), trainer.optimizer.state_dict()])
    check_comm(group, trainer, feed, timer, pairs=2)
    after = [trainer.module.state_dict(), trainer.optimizer.state_dict()]
    return _same(before, after) and all(parameter.grad is None for parameter in trainer.module.parameters())


def with_batchnorm(classes: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 5), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 24 * 24, classes))


def _same(before: Any, after: Any) -> bool:
    if isinstance(before, torch.Tensor):
        return torch.equal(before, after)
    if isinstance(before, dict):
        return before.keys() == after.keys() and all(_same(before[key], after[key]) for key in before)
    if isinstance(before, list):
        return len(before) == len(after) and all(map(_same, before, after))
    return bool(before == after)


def pair(tail_s: float = 0.040, sync_computing_s: float = 0.110, computing_s: float = 0.100) -> Pair:
    """100 ms of computing, 110 beside an exchange of which 40 ms stay exposed; 90 ms of processor time."""
    sync = Timed(sync_computing_s + tail_s, tail_s, sync_computing_s, cpu_s=0.09)
    return Pair(sync, Timed(computing_s, 0.0, computing_s, cpu_s=0.09))


def profiled(backward_s: float = 0.080, tail_s: float = 0.041, timed: Pair | None = None) -> Profiled:
    """Backward's operators take 70 ms alone."""
    return Profiled(timed or pair(), ProfiledStep(backward_s, tail_s), ProfiledStep(0.070, 0.0))


def test_the_difference_is_contention_and_tail() -> None:
    """150 ms with exchange, 100 without: 10 ms by the operators' growth and 40 ms of tail leave nothing over."""
    found = compare_views([pair()] * 3, [profiled()] * 2)
    assert found.closes is True
    assert found.profiled_pairs == 2
    assert found.difference_interval_s == pytest.approx((0.050, 0.050))
    assert (found.pairs, found.discarded) == (3, 0)
    expected = {
        "sync_step_s": 0.150,
        "no_sync_step_s": 0.100,
        "difference_s": 0.050,
        "hook_exposed_s": 0.040,
        "profiled_difference_s": 0.050,
        "profiled_hook_exposed_s": 0.040,
        "profiler_exposed_s": 0.041,
        "contention_s": 0.010,
        "residual_s": 0.0,
    }
    assert {name: getattr(found, name) for name in expected} == pytest.approx(expected)
    assert found.sentence == (
        "the measurements agree: gradient all-reduce adds 50 ms to a step, 10 ms by contention and 40 ms as exposed tail. "
        "Profiled steps have a tail of 40 ms, the profiler 41 ms."
    )


LONGER, SLOWED, HELD_UP = (pair(sync_computing_s=seconds) for seconds in (0.120, 0.130, 0.140))
HIDDEN = pair(tail_s=0.0, sync_computing_s=0.105)
SLOW_STEPS = [profiled(backward_s=0.100, timed=SLOWED)] * 3


VIEWS: dict[str, tuple[list[Pair], list[Profiled], float, str]] = {
    "6 % of the step that nobody accounts for": (
        [LONGER],
        [profiled(timed=LONGER)],
        0.010,
        "the difference is 60 ms, contention and exposed tail 50 ms",
    ),
    "another tail": (
        [pair()],
        [profiled(tail_s=0.050)],
        0.0,
        "the profiler's tail is 50 ms, the step clock's of the same steps 40 ms",
    ),
    "a profiler that changes the exchange": (
        [pair()] * 20,
        SLOW_STEPS,
        0.0,
        "without the profiler the difference is 50 ms at the nearest, with it 70 ms",
    ),
    "a busy machine's noise": ([pair(tail_s=tail_s) for tail_s in (0.02, 0.03, 0.04, 0.06, 0.08)], SLOW_STEPS, 0.0, ""),
    "what holds a pair up lengthens its operators": (
        [pair()] * 3,
        [profiled(), profiled(backward_s=0.110, timed=HELD_UP), profiled()],
        0.0,
        "",
    ),
    "40 % of the exchange, under 2 % of the step": ([HIDDEN], [profiled(backward_s=0.073, tail_s=0.0, timed=HIDDEN)], 0.002, ""),
}


@pytest.mark.parametrize(("plain", "profiles", "residual_s", "difference"), VIEWS.values(), ids=VIEWS)
def test_where_the_views_close(plain: list[Pair], profiles: list[Profiled], residual_s: float, difference: str) -> None:
    found = compare_views(plain, profiles)
    assert found.residual_s == pytest.approx(residual_s)
    assert found.closes is not bool(difference)
    assert found.closes or (difference in str(found.sentence) and "Do not rely on" in str(found.sentence))


def test_a_pair_that_others_held_up_is_discarded() -> None:
    pairs = [pair(), pair(computing_s=0.135), pair(), pair(sync_computing_s=0.150), pair()]
    assert undisturbed(pairs) == [0, 2, 4]
    found = compare_views(pairs, [profiled()])
    assert (found.pairs, found.discarded, found.closes) == (5, 2, True)


def test_without_processor_time_no_pair_is_discarded() -> None:
    """On a GPU the host's processor time says nothing about the computing."""
    timed = [Timed(total_s, 0.0, total_s, cpu_s=None) for total_s in (0.1, 0.2)]
    assert undisturbed([Pair(step, step) for step in timed]) == [0, 1]


def test_the_record_is_the_rank_that_closes_least() -> None:
    records = [
        CommCheck(closes=True, residual_s=0.003),
        CommCheck(closes=False, residual_s=-0.002),
        CommCheck(closes=False, residual_s=0.001),
    ]
    assert worst(records) == CommCheck(rank=1, closes=False, residual_s=-0.002)


def test_a_blind_profiler_is_no_agreement() -> None:
    """A rank that could not be watched comes before any that could: nothing is known of it. JSON holds what it tells."""
    found = worst([CommCheck(closes=True, residual_s=0.0), CommCheck(closes=False, residual_s=9.0), blind()])
    assert (found.rank, found.closes) == (2, False)
    assert "recorded no GPU kernel" in str(found.sentence)
    assert set(json.loads(json.dumps(encode(found), allow_nan=False))) == {"rank", "closes", "sentence", "residual_s"}


NODE = "autograd::engine::evaluate_function: "


def event(cat: str, name: str, start: float, end: float, correlation: int | None = None) -> dict[str, Any]:
    args = {} if correlation is None else {"correlation": correlation}
    return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": end - start, "args": args}


def launched(name: str, launch: float, start: float, end: float, number: int) -> list[dict[str, Any]]:
    return [event("cuda_runtime", "cudaLaunchKernel", launch, launch + 1, number), event("kernel", name, start, end, number)]


def test_operators_on_a_processor() -> None:
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
    assert (found.method, found.steps, found.step_clock_exposed_s) == (COLLECTIVE_KERNELS, 2, 0.00015)
    assert [found.step_s, found.collectives_s, found.exposed_s] == pytest.approx([1e-3, 300e-6, 150e-6])
    assert dict(found.by_operation_s) == pytest.approx({"all_gather": 200e-6, "reduce_scatter": 100e-6})


def test_threads_of_gloo() -> None:
    found = profiled_exchange([*STEPS, *on_cpu(1), *on_cpu(2)], None)
    assert found is not None
    assert found.method == THREADS
    assert [found.by_operation_s["all_gather"], found.collectives_s, found.exposed_s] == pytest.approx([250e-6, 300e-6, 250e-6])


@pytest.mark.parametrize("events", [[], STEPS, [*STEPS, event("cpu_op", "aten::mm", 1000, 1500)], on_cpu(1)])
def test_unknown_where_no_collective_is_there(events: list[dict[str, Any]]) -> None:
    """Another library's, or a driver that lets nobody profile: that is not an exchange of no time."""
    assert profiled_exchange(events, None) is None


def test_the_mean_over_ranks() -> None:
    one, other = (profiled_exchange([*STEPS, *events(1), *events(2)], None) for events in (on_cpu, on_gpu))
    assert one is not None
    assert other is not None
    assert mean_exchange([one, other]).exposed_s == pytest.approx(200e-6)  # type: ignore[union-attr]
    assert mean_exchange([one, None]) is None
    assert mean_exchange([]) is None


def test_times_apart() -> None:
    assert union([(5.0, 8.0), (0.0, 3.0), (2.0, 4.0)]) == [(0.0, 4.0), (5.0, 8.0)]
    assert length_us([(5.0, 8.0), (0.0, 3.0), (2.0, 4.0)]) == 7.0
