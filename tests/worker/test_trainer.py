"""One optimizer step: what is marked, in which order, and how often gradients travel; and what a workload may ask of torch."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from hpcddp.core.point import Ddp, Workload
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.training.trainer import Trainer, apply_settings, make_scaler, make_trainer
from tests.worker import forked, given

MICRO_BATCH = ["forward", "backward", "comm_exposed"]


def one_step(accumulate: int) -> tuple[list[str], int]:
    """The marks of a step, and how many buckets of gradients were exchanged in it (the first step has one bucket)."""
    group = join(this_rank("local"), "cpu")
    source, marks, buckets = given.mnist(4), list[str](), list[int]()
    trainer = make_trainer(given.workload(accumulate=accumulate), source, group.device, group.rank.rank)

    def counted(group, bucket):  # type: ignore[no-untyped-def]  # DDP accepts no annotation but its own types
        buckets.append(bucket.index())
        return allreduce_hook(group, bucket)

    assert trainer.ddp
    trainer.ddp.register_comm_hook(None, counted)
    trainer.step(source.batch(torch.tensor([0, 1, 2, 3])), marks.append)
    group.leave()
    return marks, len(buckets)


@pytest.mark.parametrize("accumulate", [1, 4])
def test_gradients_travel_once_per_step(tmp_path: Path, accumulate: int) -> None:
    """With the last micro-batch; the end of backward is marked before the exchange is waited for, in all of them."""
    for marks, buckets in forked.values(tmp_path, 2, one_step, accumulate):
        assert marks == [*(MICRO_BATCH * accumulate), "optimizer"]
        assert buckets == 1


def train_each(workloads: list[Workload]) -> list[torch.Tensor]:
    """The parameters of one rank after five steps of each workload."""
    group = join(this_rank("local"), "cpu")
    source = given.mnist(64)
    found = []
    for workload in workloads:
        trainer = make_trainer(workload, source, group.device, group.rank.rank)
        for step in range(5):
            first = 4 * (step * group.rank.world + group.rank.rank)
            trainer.step(source.batch(torch.arange(first, first + 4)), lambda _: None)
        found.append(flat(trainer))
    group.leave()
    return found


def flat(trainer: Trainer) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in trainer.module.parameters()])


def test_one_process_needs_no_ddp(tmp_path: Path) -> None:
    """`parallel: none`, and data_parallel on a CPU, train what one rank of DDP does, ==."""
    kinds = ("ddp", "none", "data_parallel")
    ((ddp, none, data_parallel),) = forked.values(tmp_path, 1, train_each, [given.workload(parallel=kind) for kind in kinds])
    assert torch.equal(none, ddp)
    assert torch.equal(data_parallel, ddp)


@pytest.mark.dear
def test_compressed_gradients_train_all_ranks_alike(tmp_path: Path) -> None:
    """Each of torch's hooks leaves all ranks with the same parameters, near those without compression but not them.

    PowerSGD too: it compresses from the third step on. On gloo it works with a single bucket only, hence the size.
    """
    kinds = ["none", "fp16", "powersgd", *(["bf16"] if torch.version.cuda else [])]  # DDP refuses bf16 in a build for CPUs
    workloads = [given.workload(ddp=Ddp(compression=kind, bucket_cap_mb=100)) for kind in kinds]  # type: ignore[arg-type]
    (plain, *compressed), others = forked.values(tmp_path, 2, train_each, workloads)
    assert all(torch.equal(*pair) for pair in zip([plain, *compressed], others, strict=True))
    for parameters in compressed:
        assert 0 < float((parameters - plain).abs().max()) < 0.2


def ddp_says(workloads: list[Workload]) -> list[dict[str, Any]]:
    """What torch itself records of how DDP was made."""
    group = join(this_rank("local"), "cpu")
    found = []
    for workload in workloads:
        trainer = make_trainer(workload, given.mnist(4), group.device, group.rank.rank)
        assert trainer.ddp
        found.append(trainer.ddp._get_ddp_logging_data())  # type: ignore[no-untyped-call]
    group.leave()
    return found


def test_ddps_options_reach_it(tmp_path: Path) -> None:
    """Bucket size, static graph and gradients as views of buckets; torch's own choices where nothing is said."""
    chosen = Ddp(bucket_cap_mb=3, static_graph=True, gradient_as_bucket_view=True)
    ((plain, chosen_ones),) = forked.values(tmp_path, 1, ddp_says, [given.workload(), given.workload(ddp=chosen)])
    keys = ("bucket_cap_bytes", "gradient_as_bucket_view", "static_graph")
    assert [plain.get(key, 0) for key in keys] == [25 << 20, 0, 0]
    assert [chosen_ones.get(key, 0) for key in keys] == [3 << 20, 1, 1]


def no_ddp(**changes: Any) -> Trainer:
    return make_trainer(given.workload(parallel="none", **changes), given.cifar(4), torch.device("cpu"), 0)


def test_batchnorm_over_all_ranks() -> None:
    """`sync_batchnorm` turns every BatchNorm into torch's SyncBatchNorm and changes no parameter."""
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
    """cuDNN's search and TF32 in products and convolutions alike; what is left open is left alone."""
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
