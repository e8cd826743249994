"""Models by name: sizes as published, equal in every rank.

Operations of training, counted without computing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hpcddp.core.catalog import PARAMETERS
from hpcddp.core.errors import HpcddpError
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.training.models import build_model, flops_per_sample
from tests.worker import forked


@pytest.mark.parametrize(("name", "classes"), PARAMETERS)
def test_parameter_counts(name: str, classes: int) -> None:
    with torch.device("meta"):
        model = build_model(name, classes=classes, height=224 if classes == 1000 else 32, seed=1)
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS[name, classes]


@pytest.mark.dear
@pytest.mark.parametrize(("name", "height", "channels"), [("mnist-cnn", 28, 1), ("resnet18", 32, 3), ("vgg11", 32, 3)])
def test_small_images_fit(name: str, height: int, channels: int) -> None:
    model = build_model(name, classes=10, height=height, seed=1).eval()
    with torch.no_grad():
        assert model(torch.zeros(2, channels, height, height)).shape == (2, 10)


@pytest.mark.parametrize(("name", "forward_flops"), [("vit_b_16", 35.1e9), ("vit_l_16", 123.1e9)])
def test_vision_transformers_compute_what_is_published(name: str, forward_flops: float) -> None:
    """torchvision's tables have 17.56 and 61.55 billion multiplications and additions of a 224 x 224 image's forward."""
    with torch.device("meta"):
        model = build_model(name, classes=1000, height=224, seed=1)
    counted = flops_per_sample(model, (3, 224, 224))
    assert counted == pytest.approx(3 * forward_flops, rel=0.01)


def test_a_vision_transformer_of_small_images() -> None:
    with torch.device("meta"):
        model = build_model("vit_b_16", classes=10, height=32, seed=1)
        assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert dict(model.named_parameters())["encoder.pos_embedding"].shape[1] == 64 + 1


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
    published = {name: build_model(name, classes=1000, height=224, seed=1) for name in PUBLISHED_GMAC}
    found = {name: flops_per_sample(model, (3, 224, 224)) for name, model in published.items()}
    two_layers = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 2))
    return {**found, "two layers": flops_per_sample(two_layers, (3, 2, 2)), "peeks": flops_per_sample(Peeks(), (3, 2, 2))}


@pytest.mark.dear
def test_operations_are_those_published_and_counted_by_hand(tmp_path: Path) -> None:
    """Two operations a multiplication; backward is twice forward, but for the gradient of the images, which nobody needs.

    By hand: 12 x 5 forward and for the weights; 5 x 2 forward, for the weights and the input. What decides by the values of its
    input has no count.
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
