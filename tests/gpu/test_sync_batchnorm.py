"""SyncBatchNorm: every rank normalises by the whole step's statistics, and trains as one process would with all samples."""

from __future__ import annotations

from pathlib import Path

import torch

from hpcddp.core.point import Data, Workload
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.training.trainer import apply_settings, make_trainer
from tests.gpu import ranks
from tests.gpu.device import gpu_count
from tests.gpu.marks import touches
from tests.gpu.results import Figures
from tests.worker import given

SAMPLES = 8
"""Of a rank."""

Trained = dict[str, torch.Tensor]

OFF_PERCENT = 1.0
"""What sums in another order may come to after a step, of the largest value."""


@touches(
    "hpcddp/worker/training/trainer.py",
    stand_in="torch's own is CUDA's only: its statistics are added up by another code, over gloo",
)
def test_ranks_normalise_alike(tmp_path: Path, figures: Figures) -> None:
    """After a step, statistics are equal bits on all ranks, and they and the parameters are those of one process."""
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
