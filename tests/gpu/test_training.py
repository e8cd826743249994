"""Every way to compute that a workload may ask for trains, passes the gates, and is what really computes."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch

from hpcddp.core.point import Data, Ddp, Optimizer, Point, Workload
from hpcddp.worker.attempt_records import rounding_key
from hpcddp.worker.checksums import VALUES, probe
from hpcddp.worker.gates import ROUNDING
from hpcddp.worker.launch_record import tf32
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.training.feeds import first_batch
from hpcddp.worker.training.trainer import apply_settings, make_trainer
from tests.gpu import ranks
from tests.gpu.device import Figures, gpu_count, is_real, touches
from tests.worker import given

WAYS: dict[str, dict[str, Any]] = {
    "fp32": {"tf32": False},
    "tf32": {"tf32": True},
    "bf16": {"precision": "bf16"},
    "fp16": {"precision": "fp16"},
    "channels_last": {"precision": "bf16", "channels_last": True},
    "accumulate": {"accumulate": 2},
    "sync_batchnorm": {"sync_batchnorm": True},
    "compression": {"ddp": Ddp(compression="fp16")},
    "static_graph": {"ddp": Ddp(static_graph=True)},
    "bare": {"parallel": "none"},
}
TRIED = ("bf16", "fp16", "bare")
"""On the stand-in in `make test`, whose arithmetic is a processor's: tests/worker trains in the other ways."""


@touches(
    "worker/training/trainer.py",
    "worker/training/parallel.py",
    "worker/training/train.py",
    "worker/checksums.py",
    "worker/attempt_records.py",
    stand_in="the arithmetic is a processor's; the scaler does not scale; the model has no BatchNorm, which sync_batchnorm "
    "would change",
)
@pytest.mark.parametrize("way", [pytest.param(way, marks=[] if way in TRIED else pytest.mark.soak) for way in WAYS])
def test_trains(tmp_path: Path, figures: Figures, way: str) -> None:
    changes = WAYS[way]
    point = ranks.gpu_point(1 if changes.get("parallel") == "none" else None, evaluate=way == "bf16", **changes)
    attempt = ranks.done(tmp_path, point)
    assert attempt.launch["device"] == "cuda"
    if point.workload.tf32 is not None:
        assert attempt.launch["tf32"] == {"convolutions": point.workload.tf32, "products": point.workload.tf32}
    peak = attempt.end["ranks"][0]["peak_memory_bytes"]
    assert 0 < peak["allocated"] <= peak["reserved"]
    rows = attempt.timed_steps(0)
    samples = point.workload.batch_per_gpu * len(rows)
    figures.add("samples_per_s_and_gpu", samples / sum(row["total_ns"] or 0 for row in rows) * 1e9)
    figures.add("peak_allocated_mib", peak["allocated"] / 2**20)


def what_computes(workloads: list[Workload]) -> list[dict[str, Any]]:
    """Of each: the types and layout that its model's forward has, and torch's switches."""
    group, found = join(this_rank("local"), "cuda"), []
    for workload in workloads:
        apply_settings(workload)
        source = given.mnist(64)
        trainer = make_trainer(workload, source, group.device, group.rank.rank)
        batch = first_batch(Point(cluster="local", workload=workload), source, group)
        with trainer.autocast():
            scores = trainer.module(trainer.normalize(batch[0]))
        loss = trainer.step(batch, lambda part: None)
        found.append(
            {
                "scores": str(scores.dtype),
                "channels_last": list(trainer.module.parameters())[2].is_contiguous(memory_format=torch.channels_last),
                "scaled": trainer.scaler is not None and trainer.scaler.is_enabled(),
                "finite": bool(torch.isfinite(loss)),
                "tf32": tf32(),
            }
        )
    group.leave()
    return found


@touches("worker/training/trainer.py", "worker/launch_record.py", stand_in="autocast is a processor's, which has the same types")
def test_the_model_computes_in_what_was_asked_for(tmp_path: Path) -> None:
    """Autocast gives scores of its type, channels_last is the layout of a convolution's weights, fp16 alone scales its loss."""
    names = ["fp32", "tf32", "bf16", "fp16", "channels_last"]
    (found,) = ranks.values(tmp_path, 1, what_computes, [given.workload(**WAYS[way]) for way in names])
    fp32, with_tf32, bf16, _, channels_last = found
    kinds = ("float32", "float32", "bfloat16", "float16", "bfloat16")
    assert [way["scores"] for way in found] == [f"torch.{kind}" for kind in kinds]
    assert [way["scaled"] for way in found] == [False, False, False, True, False]
    assert (bf16["channels_last"], channels_last["channels_last"]) == (False, True)
    assert (fp32["tf32"]["products"], with_tf32["tf32"]["products"]) == (False, True)
    assert all(way["finite"] for way in found)


@pytest.mark.soak
@touches("worker/training/ddp_warmup.py", stand_in="nothing is compiled; tests/worker/test_trainer.py does it on a processor")
def test_compiled(tmp_path: Path, figures: Figures) -> None:
    """torch.compile is done before the first step: it has a time of its own, and no step is much longer than the others."""
    point = ranks.gpu_point(compile=True, precision="bf16", channels_last=True)
    attempt = ranks.done(tmp_path, point)
    figures.add("compile_s", attempt.end["compile_s"], least=0.0)
    totals_s = [(row["total_ns"] or 0) / 1e9 for row in attempt.steps(0)]
    figures.add("longest_step_s", max(totals_s), most=2.0)


@pytest.mark.soak
@touches("worker/training/parallel.py", stand_in="DataParallel calls the module as it is")
def test_data_parallel(tmp_path: Path) -> None:
    point = ranks.gpu_point(parallel="data_parallel", precision="bf16")
    assert point.ranks == 1
    ranks.run_point(tmp_path, point).check_done()


@touches("worker/training/train.py", "worker/timing/steptimer.py", stand_in="the arithmetic is a processor's")
def test_a_loss_that_is_no_number_is_caught(tmp_path: Path) -> None:
    point = ranks.gpu_point(optimizer=Optimizer(lr=1e30), data=Data(name="synthetic-mnist"), model="mnist-cnn")
    end = ranks.run_point(tmp_path, point).end
    assert (end["state"], end["fault"]["kind"]) == ("failed", "diverged")
    assert re.match(r"rank \d on node0: the loss of step \d+ is ", end["reason"])


FILES = ("worker/training/sharding.py", "worker/checksums.py")


@touches(*FILES, stand_in="gloo gathers and scatters while the rank waits: what hides behind the computation is not tried")
@pytest.mark.parametrize(
    ("parallel", "precision"),
    [
        ("hsdp", "bf16"),
        *(pytest.param("fsdp", precision, marks=pytest.mark.soak) for precision in ("fp32", "bf16", "fp16")),
    ],
)
def test_what_a_rank_waits_for_is_marked(tmp_path: Path, figures: Figures, parallel: str, precision: str) -> None:
    batch = {} if is_real() else {"batch_per_gpu": 256}  # every batch of the evaluation gathers the parameters
    point = ranks.gpu_point(parallel=parallel, precision=precision, measure={"comm": "on"}, evaluate=True, **batch)
    attempt = ranks.done(tmp_path, point)
    assert attempt.launch["communication"] == "nccl"
    waits = {name: value for name, value in attempt.end["sharded_exchange"].items() if name != "method"}
    rows = [row for rank in range(point.ranks) for row in attempt.steps(rank) if not (row["flags"] or 0) & 1]
    assert all(0 < (row["comm_exposed_ns"] or 0) < (row["total_ns"] or 0) for row in rows)
    exposed_s = sum(row["comm_exposed_ns"] or 0 for row in rows) / len(rows) / 1e9
    assert sum(waits.values()) == pytest.approx(exposed_s, rel=1e-3)
    shares = [100 * (row["comm_exposed_ns"] or 0) / (row["total_ns"] or 1) for row in rows]
    figures.add("comm_exposed_percent", median(shares), most=100.0)


@pytest.mark.soak
@touches(*FILES, stand_in="arithmetic is the host's, and no memory is a GPU's")
def test_losses_and_memory_beside_ddps(tmp_path: Path, figures: Figures) -> None:
    """The last of some steps has DDP's loss but for the order of sums; of several GPUs each holds less."""
    size: dict[str, Any] = {"model": "vit_b_16", "batch_per_gpu": 16} if is_real() else {}
    losses, memory = {}, {}
    for parallel in ("ddp", "fsdp"):
        attempt = ranks.done(tmp_path / parallel, ranks.gpu_point(parallel=parallel, tf32=False, **size))
        losses[parallel] = attempt.end["loss_last"]
        memory[parallel] = max(rank["peak_memory_bytes"]["allocated"] for rank in attempt.end["ranks"])
        figures.add(f"{parallel}_allocated_mb", memory[parallel] / 2**20)
    assert losses["fsdp"] == pytest.approx(losses["ddp"], rel=0.02)
    if is_real() and len(attempt.outcomes) > 1:
        assert memory["fsdp"] < memory["ddp"]


SAMPLES = 8
"""Of a rank."""

Trained = dict[str, torch.Tensor]

OFF_PERCENT = 1.0
"""What sums in another order may come to after a step, of the largest value."""


@touches(
    "worker/training/trainer.py", stand_in="torch's own is CUDA's only: its statistics are added up by another code, over gloo"
)
def test_ranks_normalise_alike(tmp_path: Path, figures: Figures) -> None:
    workload = given.workload(
        model="resnet18", data=Data(name="synthetic-cifar10"), batch_per_gpu=SAMPLES, sync_batchnorm=True, tf32=False
    )
    found = ranks.values(tmp_path, gpu_count(), trained, workload)
    synced, in_one_process = [own for own, _ in found], found[0][1]
    assert in_one_process is not None
    for other in synced[1:]:
        assert all(torch.equal(value, other[name]) for name, value in synced[0].items())
    for kind, suffixes in (("statistics", ("running_mean", "running_var")), ("parameters", ("weight", "bias"))):
        names = [name for name in in_one_process if name.endswith(suffixes)]
        figures.add(
            f"{kind}_off_percent", max(off_percent(synced[0][name], in_one_process[name]) for name in names), most=OFF_PERCENT
        )


def off_percent(value: torch.Tensor, expected: torch.Tensor) -> float:
    return float(100 * (value - expected).abs().max() / expected.abs().max().clamp_min(1e-6))


def trained(workload: Workload) -> tuple[Trained, Trained | None]:
    """State after a step of the rank's samples; of rank 0 also that of all ranks' samples in one process, by plain BatchNorm."""
    apply_settings(workload)
    group = join(this_rank("local"), "cuda")
    source, world, rank = given.cifar(SAMPLES * group.rank.world), group.rank.world, group.rank.rank

    def after_a_step(chosen: Workload, first: int, samples: int) -> Trained:
        trainer = make_trainer(chosen, source, group.device, 0)
        trainer.model.train()
        images, labels = source.batch(torch.arange(first, first + samples))
        trainer.step((images.to(group.device), labels.to(group.device)), lambda part: None)
        return {name: value.detach().cpu() for name, value in trainer.module.state_dict().items()}

    own = after_a_step(workload, SAMPLES * rank, SAMPLES)
    plain = given.workload(model="resnet18", data=workload.data, batch_per_gpu=SAMPLES * world, parallel="none", tf32=False)
    in_one_process = after_a_step(plain, 0, SAMPLES * world) if rank == 0 else None
    group.leave()
    return own, in_one_process


SHAPE = (1, 28, 28)


def probed_twice(precision: str) -> dict[str, Any]:
    workload = given.workload(precision=precision)
    apply_settings(workload)
    group = join(this_rank("local"), "cuda")
    trainer = make_trainer(workload, given.mnist(64), group.device, group.rank.rank)
    before = torch.cuda.get_rng_state(group.device), torch.backends.cudnn.benchmark
    first, again = (list(probe(trainer, SHAPE).values) for _ in range(2))
    unchanged = torch.equal(before[0], torch.cuda.get_rng_state(group.device)) and before[1] == torch.backends.cudnn.benchmark
    group.leave()
    return {"first": first, "again": again, "unchanged": unchanged}


@touches("worker/attempt_records.py", "worker/checksums.py", stand_in="scores are a processor's")
@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=pytest.mark.soak)])
def test_ranks_and_repetitions_give_the_same(tmp_path: Path, figures: Figures, precision: str) -> None:
    """Within what may be rounding; GPUs of one type give equal bits."""
    found = ranks.values(tmp_path, gpu_count(), probed_twice, precision)
    assert all(each["unchanged"] and len(each["first"]) == VALUES for each in found)
    largest = max(map(abs, found[0]["first"]))
    others = [values for each in found for values in (each["first"], each["again"])]
    apart = max(abs(one - other) for values in others for one, other in zip(values, found[0]["first"], strict=True)) / largest
    figures.add("apart_percent", 100 * apart)
    assert apart <= ROUNDING[rounding_key(given.point(1, device="cuda", precision=precision))]
