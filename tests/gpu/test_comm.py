"""The communication hook, the collectives by themselves, and what NCCL says of its network."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
import torch.distributed as dist

from hpcddp.core.point import Ddp, Point, comm_point
from hpcddp.core.schema import encode
from hpcddp.worker.comm.hook import time_buckets
from hpcddp.worker.comm.transport import first_collective
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import ProcessGroup, join
from hpcddp.worker.timing.clock import clock_for
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.trainer import make_trainer
from hpcddp.worker.watchdog.flight_recorder import SIZE, SIZE_BEFORE_2_9, dump_function, group_states
from tests.gpu import ranks
from tests.gpu.device import Figures, is_real, need_gpus, touches
from tests.worker import given

STEPS = 6


@touches(
    "worker/comm/hook.py",
    "worker/rendezvous.py",
    stand_in="NCCL is gloo: that its callback runs in a stream of its own is not tried",
)
def test_every_bucket_of_every_step_is_recorded(recorded_run: ranks.Attempt, figures: Figures) -> None:
    figures.add("comm_exposed_percent", exposed_percent(recorded_run), most=100.0)


@pytest.mark.soak
@touches("worker/comm/hook.py", stand_in="as above")
def test_every_bucket_of_a_static_graph_is_recorded(tmp_path: Path, figures: Figures) -> None:
    attempt = ranks.done(tmp_path, ranks.gpu_point(measure={"comm": "on"}, ddp=Ddp(static_graph=True)))
    figures.add("comm_exposed_percent", exposed_percent(attempt), most=100.0)


def exposed_percent(attempt: ranks.Attempt) -> float:
    """Of a timed step. Each bucket has its bytes, is ready before it is done, and lies within the step that it belongs to."""
    assert attempt.launch["communication"] == "nccl"
    exposed = []
    for rank in range(len(attempt.outcomes)):
        steps, buckets = {row["step"]: row for row in attempt.steps(rank)}, attempt.buckets(rank)
        of_step = Counter(row["step"] for row in buckets)
        assert set(of_step) == set(steps)
        assert len({of_step[step] for step in list(steps)[2:]}) == 1  # from the third on buckets are what they stay
        for row in buckets:
            step = steps[row["step"]]
            begin_ns, end_ns = step["start_ns"] or 0, (step["start_ns"] or 0) + (step["total_ns"] or 0)
            assert begin_ns <= (row["ready_ns"] or 0) <= (row["done_ns"] or 0) <= end_ns
            assert row["bytes"]
        exposed += [100 * (row["comm_exposed_ns"] or 0) / (row["total_ns"] or 1) for row in attempt.timed_steps(rank)]
    return median(exposed)


def train(group: ProcessGroup, point: Point, *, hooked: bool) -> list[torch.Tensor]:
    source = given.cifar(512) if point.workload.model == "resnet18" else given.mnist(512)
    trainer, samples = make_trainer(point.workload, source, group.device, group.rank.rank), point.workload.batch_per_gpu
    timer: StepTimer = StepTimer(clock_for("cuda"))
    if hooked:
        assert trainer.ddp
        time_buckets(trainer.ddp, timer)
    timer.restart()
    for step in range(STEPS):
        first = samples * (step * group.rank.world + group.rank.rank)
        images, labels = source.batch(torch.tensor([index % len(source) for index in range(first, first + samples)]))
        trainer.step((images.to(group.device), labels.to(group.device)), timer.mark)
        timer.close_step(0)
    assert len([bucket for step in timer.drain() for bucket in step.buckets]) >= (STEPS if hooked else 0)
    return [parameter.detach().cpu() for parameter in trainer.module.parameters()]


def train_both_ways(point: Point) -> bool:
    ranks.same_bits_every_time()
    group = join(this_rank("local"), "cuda")
    bare, hooked = (train(group, point, hooked=hooked) for hooked in (False, True))
    group.leave()
    return all(torch.equal(*pair) for pair in zip(bare, hooked, strict=True))


@touches("worker/comm/hook.py", stand_in="NCCL is gloo, which adds up in another order")
@pytest.mark.parametrize(
    "ddp",
    [
        Ddp(gradient_as_bucket_view=True, bucket_cap_mb=1),
        *(pytest.param(ddp, marks=pytest.mark.soak) for ddp in (Ddp(), Ddp(static_graph=True))),
    ],
    ids=["views", "default", "static graph"],
)
def test_the_hook_reduces_as_ddp_does(tmp_path: Path, ddp: Ddp) -> None:
    """Parameters after several steps are those without the hook, bit for bit."""
    point = ranks.gpu_point(ddp=ddp, cudnn_benchmark=False)
    assert all(ranks.values(tmp_path, point.ranks, train_both_ways, point))


@touches(
    "worker/comm/check.py", "worker/comm/trace.py", stand_in="the profiler sees no kernels, so that the views are not compared"
)
def test_views_of_the_exchange_are_compared(tmp_path: Path, figures: Figures) -> None:
    """By the step clock, by steps without exchange and by the profiler's kernels; with one GPU nothing is exchanged."""
    attempt = ranks.done(tmp_path, ranks.gpu_point(measure={"comm": "check"}))
    found = attempt.end["comm_check"]
    if len(attempt.outcomes) == 1:
        assert found is None
    elif is_real():
        figures.add("exchange_residual_ms", 1e3 * found["residual_s"])
        assert found["closes"], found["sentence"]
    else:
        assert "recorded no GPU kernel" in found["sentence"]


CALLS = 500


def said_by_nccl() -> dict[str, Any]:
    group = join(this_rank("local"), "cuda")
    found = first_collective(group.device)
    left = [name for name in os.environ if name.startswith("NCCL_DEBUG")]
    dist.destroy_process_group()
    return {"said": encode(found), "left": left}


@touches("worker/comm/transport.py", "worker/comm/nccl_log.py", stand_in="the lines of NCCL's log are written beforehand")
def test_nccl_says_its_version_and_network(tmp_path: Path) -> None:
    (found,) = ranks.values(tmp_path, 1, said_by_nccl)
    assert found["left"] == []
    assert found["said"]["library"] in ("NCCL", "RCCL")
    assert found["said"]["version"]
    assert found["said"]["network"]


@touches("worker/comm/transport.py", "core/transport_record.py", stand_in="the lines of NCCL's log are written beforehand")
def test_a_run_says_how_its_gpus_are_joined(recorded_run: ranks.Attempt) -> None:
    need_gpus(2)
    record = json.loads((recorded_run.folder / "transport.json").read_text(encoding="utf-8"))
    assert record["unknown"] is None
    assert record["version"]
    assert sum(record["in_node"].values()) > 0
    assert not any(name.startswith("NCCL_DEBUG") for name in recorded_run.launch["environment"])


def recorded(calls: int, size: str) -> dict[str, Any]:
    """So many all-reduces: host time of one, and what the flight recorder has of them."""
    os.environ[SIZE_BEFORE_2_9 if SIZE_BEFORE_2_9 in os.environ else SIZE] = size
    group = join(this_rank("local"), "cuda")
    values, times = torch.zeros(1024, device=group.device), []
    for _ in range(calls):
        begin_s = time.perf_counter()
        dist.all_reduce(values)
        times.append(time.perf_counter() - begin_s)
    torch.cuda.synchronize(group.device)
    dump = dump_function()
    plain = json.loads(dump()) if dump else {}
    dist.destroy_process_group()
    begun = group_states(plain, 1)["0"].begun if plain.get("entries") else None
    return {"call_us": 1e6 * statistics.median(times), "begun": begun, "has_dump": dump is not None}


@touches("worker/watchdog/flight_recorder.py", stand_in="the recorder of NCCL is empty, and costs nothing: gloo has its own")
def test_the_flight_recorder_has_what_was_begun(tmp_path: Path, figures: Figures) -> None:
    """Its last collective's number is how many there were. What it costs the host: without it, and with it, in turns."""
    calls, sizes = (CALLS, ("0", "500") * 3) if is_real() else (5, ("0", "500"))
    found = [ranks.values(tmp_path / f"{number}", 1, recorded, calls, size)[0] for number, size in enumerate(sizes)]
    without, with_it = found[::2], found[1::2]
    if is_real() and with_it[0]["has_dump"]:
        assert {each["begun"] for each in with_it} == {calls}
    costs_us = statistics.median(each["call_us"] for each in with_it) - statistics.median(each["call_us"] for each in without)
    figures.add("recorder_us_per_collective", costs_us)


@touches("worker/comm/bench.py", "worker/comm/collectives.py", stand_in="NCCL is gloo, and sizes end at 4 MiB")
def test_collectives_are_timed_and_correct(tmp_path: Path, figures: Figures) -> None:
    attempt = ranks.run_point(tmp_path, comm_point(ranks.gpu_point()))
    assert [outcome.code for outcome in attempt.outcomes] == [0] * len(attempt.outcomes), attempt.outcomes[0].output
    found = json.loads((attempt.folder / "comm.json").read_text())
    assert found["backend"] == "nccl"
    for name, operation in found["ops"].items():
        assert operation["not_supported"] is None, name
        for row in operation["sizes"]:
            assert row["correct"], (name, row)
            assert row["time_s"] > 0
    reduced = found["ops"]["all_reduce"]["sizes"]
    figures.add("all_reduce_smallest_us", 1e6 * reduced[0]["time_s"])
    figures.add("all_reduce_largest_gb_per_s", reduced[-1]["algbw_bytes_per_s"] / 1e9)
