"""Models by name: sizes as published, equal in every rank."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hpcddp.core.catalog import PARAMETERS
from hpcddp.core.errors import HpcddpError
from hpcddp.worker.telemetry.flops import flops_per_sample
from hpcddp.worker.training.models import build_model


@pytest.mark.parametrize(("name", "classes"), PARAMETERS)
def test_parameter_counts(name: str, classes: int) -> None:
    """What planning says of a model is what trains; 10 classes are the variants for small images."""
    with torch.device("meta"):
        model = build_model(name, classes=classes, height=224 if classes == 1000 else 32, seed=1)
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS[name, classes]


@pytest.mark.dear
@pytest.mark.parametrize(("name", "height", "channels"), [("mnist-cnn", 28, 1), ("resnet18", 32, 3), ("vgg11", 32, 3)])
def test_small_images_fit(name: str, height: int, channels: int) -> None:
    """One score per class for images of the size a variant is made for."""
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
    """A 32 x 32 image has 64 patches."""
    with torch.device("meta"):
        model = build_model("vit_b_16", classes=10, height=32, seed=1)
        assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert dict(model.named_parameters())["encoder.pos_embedding"].shape[1] == 64 + 1


def test_the_seed_decides() -> None:
    """Equal seeds give equal parameters, so that ranks start equal even before DDP makes them so."""
    one, same, other = (build_model("mnist-cnn", classes=10, height=28, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not torch.equal(one["0.weight"], other["0.weight"])


def own(classes: int) -> Any:
    return torch.nn.Linear(4, classes)


def wrong(classes: int) -> Any:
    return f"a model of {classes} classes"


def test_a_users_own_model() -> None:
    """`package.module:factory` is called with the number of classes."""
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
    """The error names the model and what is wrong with it."""
    with pytest.raises(HpcddpError, match=words) as error:
        build_model(name, classes=10, height=28, seed=1)
    assert name in str(error.value)
