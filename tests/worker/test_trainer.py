"""One optimizer step: what is marked, how often gradients travel, what is compiled, and what a workload may ask of torch."""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future

from hpcddp.core.point import Ddp, Workload
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.training.backward import Backward
from hpcddp.worker.training.ddp_warmup import compile_now
from hpcddp.worker.training.trainer import Trainer, apply_settings, make_scaler, make_trainer
from tests.worker import forked, given

MICRO_BATCH = ["forward", "backward", "comm_exposed"]


def one_step(group: ProcessGroup, accumulate: int) -> tuple[list[str], int]:
    """The marks of a step, and how many buckets of gradients were exchanged in it (the first step has one bucket)."""
    source, marks, buckets = given.mnist(4), list[str](), list[int]()
    trainer = make_trainer(given.workload(accumulate=accumulate), source, group.device, group.rank.rank)

    def counted(group, bucket):  # type: ignore[no-untyped-def]  # DDP accepts no annotation but its own types
        buckets.append(bucket.index())
        return allreduce_hook(group, bucket)

    assert trainer.ddp
    trainer.ddp.register_comm_hook(None, counted)
    trainer.step(source.batch(torch.tensor([0, 1, 2, 3])), marks.append)
    return marks, len(buckets)


@pytest.mark.parametrize("accumulate", [1, 4])
def test_gradients_travel_once_per_step(tmp_path: Path, accumulate: int) -> None:
    for marks, buckets in forked.in_group(tmp_path, 2, one_step, accumulate):
        assert marks == [*(MICRO_BATCH * accumulate), "optimizer"]
        assert buckets == 1


def train_each(group: ProcessGroup, workloads: list[Workload]) -> list[torch.Tensor]:
    """The parameters of one rank after five steps of each workload."""
    source = given.mnist(64)
    found = []
    for workload in workloads:
        trainer = make_trainer(workload, source, group.device, group.rank.rank)
        for step in range(5):
            first = 4 * (step * group.rank.world + group.rank.rank)
            trainer.step(source.batch(torch.arange(first, first + 4)), lambda _: None)
        found.append(flat(trainer))
    return found


def flat(trainer: Trainer) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in trainer.module.parameters()])


def test_one_process_needs_no_ddp(tmp_path: Path) -> None:
    kinds = ("ddp", "none", "data_parallel")
    ((ddp, none, data_parallel),) = forked.in_group(tmp_path, 1, train_each, [given.workload(parallel=kind) for kind in kinds])
    assert torch.equal(none, ddp)
    assert torch.equal(data_parallel, ddp)


@pytest.mark.dear
def test_compressed_gradients_train_all_ranks_alike(tmp_path: Path) -> None:
    kinds = ["none", "fp16", "powersgd", *(["bf16"] if torch.version.cuda else [])]  # DDP refuses bf16 in a build for CPUs
    workloads = [given.workload(ddp=Ddp(compression=kind, bucket_cap_mb=100)) for kind in kinds]  # type: ignore[arg-type]
    (plain, *compressed), others = forked.in_group(tmp_path, 2, train_each, workloads)
    assert all(torch.equal(*pair) for pair in zip([plain, *compressed], others, strict=True))
    for parameters in compressed:
        assert 0 < float((parameters - plain).abs().max()) < 0.2


def ddp_says(group: ProcessGroup, workloads: list[Workload]) -> list[dict[str, Any]]:
    """What torch itself records of how DDP was made."""
    found = []
    for workload in workloads:
        trainer = make_trainer(workload, given.mnist(4), group.device, group.rank.rank)
        assert trainer.ddp
        found.append(trainer.ddp._get_ddp_logging_data())  # type: ignore[no-untyped-call]
    return found


def test_ddps_options_reach_it(tmp_path: Path) -> None:
    chosen = Ddp(bucket_cap_mb=3, static_graph=True, gradient_as_bucket_view=True)
    ((plain, chosen_ones),) = forked.in_group(tmp_path, 1, ddp_says, [given.workload(), given.workload(ddp=chosen)])
    keys = ("bucket_cap_bytes", "gradient_as_bucket_view", "static_graph")
    assert [plain.get(key, 0) for key in keys] == [25 << 20, 0, 0]
    assert [chosen_ones.get(key, 0) for key in keys] == [3 << 20, 1, 1]


def no_ddp(**changes: Any) -> Trainer:
    return make_trainer(given.workload(parallel="none", **changes), given.cifar(4), torch.device("cpu"), 0)


def test_batchnorm_over_all_ranks() -> None:
    own, synchronised = (no_ddp(model="resnet18", sync_batchnorm=on) for on in (False, True))
    assert torch.equal(flat(own), flat(synchronised))
    kinds = [type(part) for part in synchronised.module.modules()]
    assert (kinds.count(nn.BatchNorm2d), kinds.count(nn.SyncBatchNorm)) == (0, 20)


def test_data_parallel_keeps_its_precision_in_threads() -> None:
    """DataParallel's replicas run in threads, where torch's autocast has forgotten its type: the model brings its own."""
    trainer = make_trainer(given.workload(parallel="data_parallel", precision="bf16"), given.mnist(4), torch.device("cpu"), 0)
    dtypes: list[torch.dtype] = []
    torch.set_autocast_dtype("cpu", torch.float16)  # as it is on a GPU
    images = trainer.normalize(given.mnist(4).batch(torch.tensor([0, 1]))[0])
    thread = threading.Thread(target=lambda: dtypes.append(trainer.model(images).dtype))
    thread.start()
    thread.join()
    assert dtypes == [torch.bfloat16]


def test_torchs_switches_are_the_workloads() -> None:
    cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.benchmark, cudnn.allow_tf32, products.allow_tf32
    try:
        for tf32 in (True, False):
            apply_settings(given.workload(tf32=tf32, cudnn_benchmark=tf32))
            assert (cudnn.benchmark, cudnn.allow_tf32, products.allow_tf32) == (tf32, tf32, tf32)
        cudnn.allow_tf32 = True
        apply_settings(given.workload())
        assert (cudnn.benchmark, cudnn.allow_tf32, products.allow_tf32) == (True, True, False)
    finally:
        cudnn.benchmark, cudnn.allow_tf32, products.allow_tf32 = before


def test_an_older_torch_scales_losses_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 2.3 there is torch.cuda.amp.GradScaler only; on a CPU it warns and leaves losses as they are."""
    monkeypatch.delattr(torch.amp, "GradScaler")
    with pytest.warns(match="deprecated|not available"):
        scaler = make_scaler(torch.device("cpu"))
    assert float(scaler.scale(torch.ones(()))) == 1.0


STEPS = 3
"""The first one hooks its loss, the others a parameter."""

PATIENCE_S = 30.0


def marks_of_a_held_exchange(group: ProcessGroup) -> list[list[str]]:
    """Of each step, whose gradients come back when the end of backward has been marked, and not before."""
    source = given.mnist(4)
    trainer = make_trainer(given.workload(), source, group.device, group.rank.rank)
    held: list[tuple[Future[torch.Tensor], torch.Tensor]] = []
    steps: list[list[str]] = []

    def hold(_, bucket):  # type: ignore[no-untyped-def]  # DDP accepts no annotation but its own types
        held.append((Future(), bucket.buffer()))
        return held[-1][0]

    def mark(part: str) -> None:
        steps[-1].append(part)
        while part == "backward" and held:
            future, gradients = held.pop()
            future.set_result(gradients)

    assert trainer.ddp
    trainer.ddp.register_comm_hook(None, hold)
    for _ in range(STEPS):
        steps.append([])
        trainer.step(source.batch(torch.tensor([0, 1, 2, 3])), mark)
    return steps


def test_the_end_of_backward_is_marked_before_the_exchange_is_waited_for(tmp_path: Path) -> None:
    (steps,) = forked.in_group(tmp_path, 1, marks_of_a_held_exchange, timeout_s=PATIENCE_S)
    assert steps == [["forward", "backward", "comm_exposed", "optimizer"]] * STEPS


def marked(*losses: torch.Tensor, of: nn.Module) -> list[list[str]]:
    """The marks of one backward() after another of a model's losses."""
    backward, found = Backward(of.parameters()), []
    for loss in losses:
        found.append(marks := list[str]())
        backward(loss, marks.append)
    return found


EACH = ["backward", "comm_exposed"]


def test_a_step_that_leaves_out_the_hooked_parameter() -> None:
    """Its whole backward() has been computation: who marks no end of it has not seen an exchange."""
    model = nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 1)])
    first, second, batch = *model, torch.ones(1, 2)
    losses = (first(batch) + second(batch)).sum(), first(batch).sum(), second(batch).sum()
    assert marked(*losses, of=model) == [EACH] * 3


def test_a_parameter_that_no_gradient_reaches_is_not_hooked() -> None:
    model, batch = nn.ModuleDict({"used": nn.Linear(2, 1), "unused": nn.Linear(2, 1)}), torch.ones(1, 2)
    assert marked(*(model["used"](batch).sum() for _ in range(3)), of=model) == [EACH] * 3
    assert [name for name, parameter in model.named_parameters() if parameter._backward_hooks] == ["used.bias"]


DRAWING = "tests.worker.test_trainer:drawing"


def drawing(classes: int) -> nn.Module:
    """A model with what a step leaves behind: BatchNorm's statistics, and random numbers drawn."""
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(784, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()),
        *(nn.Dropout(0.5), nn.Linear(512, classes)),
    )


def without_a_compiler() -> None:
    """torch.compile as it is, up to the point where it would write C++ (half a minute): graphs are captured and split."""
    torch.compile = functools.partial(torch.compile, backend="aot_eager")


def graphs() -> int:
    from torch._dynamo.utils import counters

    return int(counters["aot_autograd"]["total"])


def compile_each(group: ProcessGroup, chosen: list[Ddp]) -> list[dict[str, Any]]:
    without_a_compiler()
    found = [compile_and_step(options, group) for options in chosen]
    return found


def compile_and_step(options: Ddp, group: ProcessGroup) -> dict[str, Any]:
    """What compiling changed, and how many graphs were made by it and by three steps after it."""
    torch._dynamo.reset()
    source, graphs_before = given.mnist(8), graphs()
    trainer = make_trainer(given.workload(model=DRAWING, compile=True, ddp=options), source, group.device, group.rank.rank)
    batch = source.batch(torch.tensor([0, 1, 2, 3]))
    before = [part.clone() for part in trainer.module.state_dict().values()], torch.get_rng_state()
    seconds = compile_now(trainer, batch)
    untouched = {
        "state": all(torch.equal(*pair) for pair in zip(before[0], trainer.module.state_dict().values(), strict=True)),
        "random numbers": torch.equal(before[1], torch.get_rng_state()),
        "gradients": all(part.grad is None for part in trainer.module.parameters()),
        "optimizer": not trainer.optimizer.state,
    }
    compiled = graphs() - graphs_before
    for _ in range(3):
        trainer.step(batch, lambda _: None)
    later = graphs() - graphs_before - compiled
    return {"untouched": untouched, "seconds": seconds, "graphs": compiled, "graphs_later": later}


@pytest.mark.dear
def test_compiling_leaves_no_trace(tmp_path: Path) -> None:
    for of_rank in forked.in_group(tmp_path, 2, compile_each, [Ddp(), Ddp(static_graph=True)]):
        for found in of_rank:
            assert all(found["untouched"].values()), found["untouched"]
            assert found["graphs"] > 1
            assert found["graphs_later"] == 0
            assert 0 < found["seconds"] < forked.TIMEOUT_S


@pytest.mark.dear
def test_the_record_says_how_long_it_took(tmp_path: Path) -> None:
    what = given.point(1, model=DRAWING, compile=True, measure={"comm": "on"})
    found = forked.ran(tmp_path, what, lambda _: without_a_compiler())
    assert (found.end["compile_s"] > 0, found.failed) == (True, {})
    assert [(rank["rows"], rank["bucket_rows"] >= rank["rows"]) for rank in found.end["ranks"]] == [(6, True)]
