"""Models by name: sizes as published, equal in every rank.

Operations of training, counted without computing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from hpcddp.core.catalog import BUCKETS
from hpcddp.core.errors import HpcddpError
from hpcddp.core.records import BUCKET_COLUMNS
from hpcddp.worker.comm.hook import time_buckets
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.timing.clock import HostClock
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.models import build_model, flops_per_sample
from tests.worker import forked


def catalogue_model(name: str, classes: int) -> tuple[nn.Module, torch.Tensor]:
    """A model of the catalogue and two images for it, on torch's default device."""
    height = 224 if classes == 1000 else 28 if name == "mnist-cnn" else 32
    return build_model(name, classes=classes, height=height, seed=1), torch.zeros(2, 1 if height == 28 else 3, height, height)


@pytest.mark.parametrize(("name", "classes"), BUCKETS)
def test_buckets_are_those_that_ddp_assigns(name: str, classes: int) -> None:
    """By its own function and default sizes (1 MiB at first, then 25), from the order in which gradients are ready."""
    ready = list[torch.Tensor]()
    with torch.device("meta"):
        model, images = catalogue_model(name, classes)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(ready.append)  # type: ignore[no-untyped-call]
    model(images).sum().backward()
    buckets, _ = dist._compute_bucket_assignment_by_size(ready, [2**20, 25 * 2**20])  # type: ignore[attr-defined]
    assert tuple(sum(ready[index].nbytes for index in bucket) for bucket in buckets) == BUCKETS[name, classes]


def reported(group: ProcessGroup, name: str, classes: int) -> tuple[int, ...]:
    """Bytes of what DDP hands to a communication hook in the second step, when it knows in which order gradients come."""
    model, images = catalogue_model(name, classes)
    ddp, timer = nn.parallel.DistributedDataParallel(model), StepTimer(HostClock())
    time_buckets(ddp, timer)
    for _ in range(2):
        ddp(images).sum().backward()
        timer.close_step(0)
    *_, last = timer.drain()
    return tuple(number for bucket in sorted(last.buckets) if (number := bucket[BUCKET_COLUMNS.index("bytes")]))


@pytest.mark.dear
@pytest.mark.parametrize(("name", "classes"), [key for key in BUCKETS if key[1] == 10 and not key[0].startswith("vit")])
def test_buckets_are_those_that_ddp_reports(tmp_path: Path, name: str, classes: int) -> None:
    assert forked.in_group(tmp_path, 1, reported, name, classes) == [BUCKETS[name, classes]]


@pytest.mark.parametrize(("name", "size"), [("mnist-cnn", 28), ("resnet18", 32), ("vgg11", 32), ("vit_b_16", 32)])
def test_small_images_fit(name: str, size: int) -> None:
    with torch.device("meta"), torch.no_grad():
        model = build_model(name, classes=10, height=size, seed=1).eval()
        assert model(torch.zeros(2, 1 if size == 28 else 3, size, size)).shape == (2, 10)


@pytest.mark.parametrize(("name", "forward_flops"), [("vit_b_16", 35.1e9), ("vit_l_16", 123.1e9)])
def test_vision_transformers_compute_what_is_published(name: str, forward_flops: float) -> None:
    """torchvision's tables have 17.56 and 61.55 billion multiplications and additions of a 224 x 224 image's forward."""
    with torch.device("meta"):
        model = build_model(name, classes=1000, height=224, seed=1)
    counted = flops_per_sample(model, (3, 224, 224))
    assert counted == pytest.approx(3 * forward_flops, rel=0.01)


def test_the_seed_decides() -> None:
    one, same, other = (build_model("mnist-cnn", classes=10, height=28, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not torch.equal(one["0.weight"], other["0.weight"])


def own(classes: int) -> Any:
    return torch.nn.Linear(4, classes)


def wrong(classes: int) -> Any:
    return f"a model of {classes} classes"


def test_a_users_own_model() -> None:
    model = build_model("tests.worker.test_models:own", classes=7, height=28, seed=1)
    assert model(torch.zeros(1, 4)).shape == (1, 7)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("resnet19", "did you mean `resnet18`"),
        ("no_such_module:make", "no_such_module"),
        ("tests.worker.test_models:missing", "missing"),
        ("tests.worker.test_models:wrong", "returned str"),
    ],
)
def test_a_model_that_cannot_be_had(name: str, words: str) -> None:
    with pytest.raises(HpcddpError, match=words) as error:
        build_model(name, classes=10, height=28, seed=1)
    assert name in str(error.value)


PUBLISHED_GMAC = {"resnet50": 4.089, "resnet18": 1.814, "vgg11": 7.609}
"""Forward at 224 x 224: `_ops` of torchvision's weights (torchvision.models, table of classification weights, GFLOPS)."""

FIRST_CONVOLUTION_MAC = {"resnet50": 64 * 112**2 * 3 * 7**2, "resnet18": 64 * 112**2 * 3 * 7**2, "vgg11": 64 * 224**2 * 3 * 3**2}


class Peeks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        flat = images.flatten(1)
        scores: torch.Tensor = self.layer(flat * 2 if flat.sum().item() > 0 else flat)
        return scores


def counted() -> dict[str, int | None]:
    with torch.device("meta"):
        published = {name: build_model(name, classes=1000, height=224, seed=1) for name in PUBLISHED_GMAC}
    found = {name: flops_per_sample(model, (3, 224, 224)) for name, model in published.items()}
    two_layers = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 2))
    return {**found, "two layers": flops_per_sample(two_layers, (3, 2, 2)), "peeks": flops_per_sample(Peeks(), (3, 2, 2))}


@pytest.mark.dear
def test_operations_are_those_published_and_counted_by_hand(tmp_path: Path) -> None:
    """Two operations a multiplication; backward is twice forward, but for the gradient of the images, which nobody needs.

    By hand: 12 x 5 forward and for the weights; 5 x 2 forward, for the weights and the input.
    """
    (found,) = forked.values(tmp_path, 1, counted)
    for name, gmac in PUBLISHED_GMAC.items():
        assert found[name] == pytest.approx(2 * (3 * gmac * 1e9 - FIRST_CONVOLUTION_MAC[name]), rel=1e-3)
    assert (found["two layers"], found["peeks"]) == (2 * (2 * 60 + 3 * 10), None)


def _among_ranks(group: ProcessGroup) -> tuple[int | None, bool]:
    model = build_model("resnet18", classes=10, height=32, seed=1).double().to(memory_format=torch.channels_last)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = flops_per_sample(model, (3, 32, 32)) if group.rank.rank == 0 else None
    same = all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    return found, same and all(part.training for part in model.modules()) and all(p.grad is None for p in model.parameters())


@pytest.mark.dear
def test_one_rank_counts_alone(tmp_path: Path) -> None:
    assert forked.in_group(tmp_path, 2, _among_ranks) == [(3_328_997_376, True), (None, True)]
