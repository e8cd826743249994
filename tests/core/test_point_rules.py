from __future__ import annotations

import re
from typing import Any

import pytest

from hpcddp.core.errors import UsageError
from hpcddp.core.point import point_from_dict, point_to_dict
from hpcddp.core.point_rules import check_point
from hpcddp.sweep.file import set_dotted
from tests.worker import given

MNIST = {"workload.data.name": "mnist"}
RESIDENT = MNIST | {"workload.data.resident": True}
NONE = {"workload.parallel": "none", "layout.gpus_per_node": 1}
ALL_REDUCE = {"workload.parallel": "all_reduce"}
FSDP = {"workload.parallel": "fsdp"}
DATA_PARALLEL = {"workload.parallel": "data_parallel", "device": "cuda"}
TRAIN = {"work": "train", "measure.epochs": 3}

OF = {"of": "workload.optimizer"}
"""Where keys without a dot belong."""


def checked(changes: dict[str, Any]) -> None:
    plain = point_to_dict(given.point(2))
    for key, value in changes.items():
        if key != "of":
            set_dotted(plain, key if "." in key or key in ("work", "device") else f"{changes['of']}.{key}", value)
    check_point(point_from_dict(plain))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workload.data.decoder": "pillow"}, "decoder is pillow, and .* has no files to decode"),
        ({"workload.data.augment": "crop_flip"}, "augment is crop_flip, which is for cifar10 and digits, not for"),
        ({"workload.data.form": "augmented"}, "form is augmented, and synthetic-mnist has no forms; only bigmnist has"),
        ({"workload.data.stage": "tmpdir"}, "stage is tmpdir, and synthetic-mnist has no files to copy"),
        (MNIST | {"workload.data.stage": "tmpdir", "measure.input": "synthetic"}, "and measure.input synthetic reads no data"),
        ({"workload.data.resident": True}, "resident is true, and synthetic-mnist is not held in memory: mnist, "),
        (RESIDENT | {"workload.loader_workers_per_rank": 2}, "no process loads them. Set loader_workers_per_rank to 0"),
        (RESIDENT | {"device": "cuda", "workload.copy_ahead": True}, "no batch is copied to the GPU. Set copy_ahead to false"),
        ({"workload.parallel": "none"}, "parallel is none: the bare model trains on one GPU, but this point has 2"),
        (DATA_PARALLEL | {"layout.nodes": 2}, "cannot reach the GPUs of 2 nodes. Set layout.nodes to 1"),
        (DATA_PARALLEL | {"device": "cpu"}, "on CPUs it has one device, but this point requests 2"),
        (DATA_PARALLEL | {"layout.launcher": "torchrun"}, "nothing for torchrun to start"),
        (DATA_PARALLEL | {"workload.compile": True}, "torch.compile does not reach the model's replicas"),
        (ALL_REDUCE | {"measure.comm": "on"}, "parallel is all_reduce: measure.comm on times DDP's buckets, and here there are"),
        (ALL_REDUCE | {"workload.ddp.compression": "fp16"}, "parallel is all_reduce: workload.ddp configures DDP's buckets"),
        (NONE | {"measure.comm": "on"}, "parallel is none: measure.comm on needs ranks that exchange"),
        (DATA_PARALLEL | {"workload.ddp.bucket_cap_mb": 5}, "parallel is data_parallel: workload.ddp needs ranks"),
        (DATA_PARALLEL | {"workload.sync_batchnorm": True}, "workload.sync_batchnorm needs ranks"),
        ({"workload.fsdp.reshard_after_forward": False}, "workload.fsdp is set, but workload.parallel is ddp: nothing is"),
        (FSDP | {"workload.ddp.bucket_cap_mb": 5}, "parallel is fsdp: workload.ddp configures DDP's all-reduce"),
        (FSDP | {"measure.comm": "check"}, "comm check compares two measurements of DDP's all-reduce. Set comm to on"),
        (FSDP | {"workload.optimizer.name": "lars"}, "name is lars, which needs the norms of whole parameters"),
        (FSDP | {"workload.compile": True}, "compile cannot compile across the gathering of parameters"),
        (FSDP | {"workload.sync_batchnorm": True, "device": "cuda"}, "sync_batchnorm was never compared"),
        (FSDP | {"workload.channels_last": True}, "gathering restores the order of dimensions"),
        ({"workload.parallel": "hsdp", "layout.nodes": 2, "layout.gpus_per_node": 1}, "with one GPU per node nothing is sharded"),
        ({"measure.comm": "check", "workload.ddp.compression": "bf16"}, "comm is check and .*compression is bf16: both are"),
        ({"measure.comm": "on", "measure.input": "io"}, "input is io: nothing is trained, so there are no gradients"),
        ({"workload.ddp.powersgd_rank": 2, "workload.ddp.compression": "fp16"}, "powersgd_rank is 2, but .* is fp16"),
        ({"workload.compile": True, "workload.ddp.bucket_cap_mb": 0.5}, "compile with workload.ddp.bucket_cap_mb 0.5"),
        ({"workload.ddp.static_graph": True, "workload.accumulate": 2}, "static_graph with workload.accumulate 2"),
        ({"workload.ddp.compression": "powersgd"}, "compression is powersgd: on CPUs"),
        ({"workload.sync_batchnorm": True}, "SyncBatchNorm is for GPUs only"),
        ({"workload.copy_ahead": True}, "no device to copy to"),
        ({"measure.stop": "seconds"}, "measure.seconds is not set"),
        ({"measure.stop": "seconds", "measure.seconds": 0}, "measure.seconds is not set"),
        ({"measure.seconds": 2.5}, "measure.seconds is 2.5, but measure.stop is steps"),
        ({"measure.stop": "interval", "measure.steps": 9, "measure.max_steps": 8}, "max_steps is 8, below measure.steps 9"),
        ({"measure.stop": "interval", "measure.interval_percent": 0}, "interval_percent is 0: no interval is that narrow"),
        ({"work": "epoch", "measure.stop": "interval"}, "an epoch ends with its data"),
        ({"work": "epoch", "measure.input": "synthetic"}, "one repeated batch is not an epoch"),
        ({"measure.evaluate": True, "measure.input": "io"}, "measure.input is io: nothing is learned"),
        ({"measure.epochs": 5}, "measure.epochs is 5, but work is steps: only a training has epochs"),
        ({"measure.evaluate_every": 0, "work": "epoch"}, "measure.evaluate_every is 0, but work is epoch: only a training"),
        ({"measure.target_accuracy": 0.9}, "measure.target_accuracy is 0.9, but work is steps: only a training"),
        ({"work": "train"}, "measure.epochs is not set"),
        (TRAIN | {"measure.stop": "interval"}, "work is train and measure.stop is interval: a training ends with its epochs"),
        (TRAIN | {"measure.input": "io"}, "work is train and measure.input is io: nothing is learned"),
        (TRAIN | {"measure.target_accuracy": 93}, "target_accuracy is 93: it is a share, at most 1. Write 0.93"),
        (TRAIN | {"measure.target_accuracy": 0.9, "measure.evaluate_every": 0}, "evaluate_every is 0: before the last epoch"),
        (OF | {"schedule": "cosine"}, "workload.optimizer.schedule is cosine, but work is steps: only a training"),
        (OF | {"warmup_epochs": 5}, "workload.optimizer.warmup_epochs is 5, but work is steps: only a training"),
        (OF | {"ema_decay": 0.9}, "workload.optimizer.ema_decay is 0.9, but work is steps: only a training"),
        (OF | {"name": "adamw", "nesterov": True}, "nesterov is true, but the optimizer is adamw: that key belongs to"),
        (OF | {"name": "lars", "betas": [0.5, 0.5]}, r"betas is \[0.5, 0.5\], but the optimizer is lars: .* adamw and lamb"),
        (OF | {"momentum": 0, "nesterov": True}, "nesterov is true and momentum is 0"),
        (OF | {"name": "lamb", "betas": [0.9]}, r"betas is \[0.9\]: two numbers below 1"),
        (OF | {"label_smoothing": 1}, "label_smoothing is 1: it must be below 1"),
        (OF | {"scaling": "sqrt"}, "scaling is sqrt, but base_batch, the global"),
        (OF | {"base_batch": 32}, "base_batch is 32, but scaling is none"),
        (OF | TRAIN | {"power": 1}, "power is 1, but schedule is constant, which ignores it"),
        (OF | TRAIN | {"schedule": "cosine", "decay_factor": 0.5}, "decay_factor is 0.5, but schedule is cosine"),
        (OF | TRAIN | {"schedule": "step"}, "schedule is step, but decay_at_epochs has no epoch"),
        (OF | TRAIN | {"schedule": "step", "decay_at_epochs": [2, 1]}, r"decay_at_epochs is \[2, 1\]: each must be later"),
        (OF | TRAIN | {"schedule": "step", "decay_at_epochs": [1, 3]}, "decay_at_epochs has 3, and measure.epochs is 3"),
        (OF | TRAIN | {"warmup_epochs": 3}, "warmup_epochs has 3, and measure.epochs is 3"),
        (OF | {"batch_at_epochs": [2]}, r"workload.optimizer.batch_at_epochs is \[2\], but work is steps: only a training"),
        (OF | TRAIN | {"batch_factor": 4}, "batch_factor is 4, but batch_at_epochs has no epoch"),
        (OF | TRAIN | {"batch_at_epochs": [1], "batch_factor": 1}, "batch_factor is 1: the batch would not grow"),
        (OF | TRAIN | {"batch_at_epochs": [2, 1]}, r"batch_at_epochs is \[2, 1\]: each must be later"),
        (OF | TRAIN | {"batch_at_epochs": [1, 3]}, r"batch_at_epochs is \[1, 3\], and measure.epochs is 3"),
        (OF | TRAIN | {"batch_at_epochs": [1], "warmup_epochs": 1.5}, "warmup_epochs is 1.5: the rate would still rise"),
        ({"measure.profile_steps": 2, "measure.profile_ranks": [0, 2]}, "profile_ranks has 2: this point has the ranks 0 to 1"),
        ({"measure.profile_steps": 2, "measure.profile_ranks": []}, "profile_ranks has no rank"),
        ({"measure.checkpoint_every_min": 5}, "checkpoint_every_min is 5, but measure.resume is false: none is written"),
        ({"measure.resume": True, "measure.stop": "interval"}, "stop is interval: its end depends on step times"),
        ({"measure.resume": True, "workload.ddp.compression": "powersgd", "device": "cuda"}, "its state of earlier gradients"),
        ({"measure.telemetry_hz": 11}, "telemetry_hz is 11: more than 10 readings"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        checked(changes)
    sentences = str(refused.value).splitlines()
    assert len(sentences) == 1
    assert re.search(r"\. [A-Z].+\.$", sentences[0])


@pytest.mark.parametrize(
    "changes",
    [
        {"layout.gpus_per_node": 1, "measure.comm": "on"},
        {"workload.ddp.static_graph": True, "measure.comm": "check"},
        {"workload.ddp.powersgd_rank": 2, "workload.ddp.compression": "powersgd", "device": "cuda"},
        {"workload.compile": True, "workload.ddp.bucket_cap_mb": 1},
        {"measure.stop": "seconds", "measure.seconds": 2.5, "measure.max_steps": 1},
        {"measure.resume": True, "measure.checkpoint_every_min": 0.5, "workload.ddp.compression": "fp16"},
        {"measure.profile_ranks": [7]},
        {"layout.launcher": "torchrun", "layout.nodes": 2},
        OF | {"name": "lars", "nesterov": True, "scaling": "sqrt", "base_batch": 4, "label_smoothing": 0.1},
        OF | TRAIN | {"name": "lamb", "eps": 1e-8, "schedule": "step", "decay_at_epochs": [1, 2], "warmup_epochs": 0.5},
        TRAIN | {"measure.target_accuracy": 1, "measure.evaluate_every": 2, "measure.resume": True, "measure.comm": "check"},
        NONE,
        DATA_PARALLEL,
        ALL_REDUCE | {"workload.accumulate": 2, "layout.nodes": 2, "layout.launcher": "torchrun"},
    ],
)
def test_what_can_be_passes(changes: dict[str, Any]) -> None:
    checked(changes)


def test_all_reasons_are_given() -> None:
    with pytest.raises(UsageError) as refused:
        checked({"workload.copy_ahead": True, "measure.telemetry_hz": 50, "measure.seconds": 1})
    assert len(str(refused.value).splitlines()) == 3
