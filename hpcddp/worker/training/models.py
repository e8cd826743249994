"""The models by name, for images of 224 x 224 as published and of 32 x 32 in their usual small variants."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import nn

from hpcddp.core.catalog import MODELS, is_factory
from hpcddp.core.errors import HpcddpError
from hpcddp.core.factory import load_factory
from hpcddp.core.schema import did_you_mean

SMALL = 64
"""Images of fewer rows than this lose everything in a stem made for 224 x 224: they get the small variant."""

VIT = {
    "vit_b_16": {"num_layers": 12, "num_heads": 12, "hidden_dim": 768, "mlp_dim": 3072},
    "vit_l_16": {"num_layers": 24, "num_heads": 16, "hidden_dim": 1024, "mlp_dim": 4096},
}
"""Sizes as Dosovitskiy et al. (2021, arXiv 2010.11929, table 1) have them, and torchvision."""


def build_model(name: str, *, classes: int, height: int, seed: int) -> nn.Module:
    """A fresh model with the same parameters in every rank; `package.module:factory` is called with (classes)."""
    torch.manual_seed(seed)
    if is_factory(name):
        return _from_factory(name, classes)
    if name not in MODELS:
        raise HpcddpError(f"no model `{name}`{did_you_mean(name, MODELS)} (or package.module:factory)")
    if name == "mnist-cnn":
        return mnist_cnn(classes)
    small = height < SMALL
    if name in VIT:
        return _vit(name, classes, height, small)
    return _vgg11(classes, small) if name == "vgg11" else _resnet(name, classes, small)


def mnist_cnn(classes: int) -> nn.Module:
    """Two convolutions and two linear layers for 1 x 28 x 28 images: 421,642 parameters with 10 classes."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),  # 32 x 14 x 14
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),  # 64 x 7 x 7
        *(nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(), nn.Linear(128, classes)),
    )


def _resnet(name: str, classes: int, small: bool) -> nn.Module:
    """Small: a 3 x 3 stem of stride 1 and no pooling after it, as He et al. (2015, section 4.2) do for CIFAR-10."""
    model: Any = getattr(_torchvision(name), name)(weights=None, num_classes=classes)
    if small:
        model.conv1 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)
        nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
        model.maxpool = nn.Identity()
    built: nn.Module = model
    return built


def _vgg11(classes: int, small: bool) -> nn.Module:
    """Small: the five pools leave 512 x 1 x 1 of a 32 x 32 image, so one linear layer does for the classifier."""
    model: nn.Module = _torchvision("vgg11").vgg11(weights=None, num_classes=classes)
    if small:
        features: Any = model.features
        return nn.Sequential(features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))
    return model


def _vit(name: str, classes: int, height: int, small: bool) -> nn.Module:
    """Small: patches of 4 x 4 pixels, so that a 32 x 32 image has 64 of them; of 16 x 16 it would have 4."""
    vision_transformer = _torchvision(name).VisionTransformer
    patch = 4 if small else 16
    model: nn.Module = vision_transformer(image_size=height, patch_size=patch, num_classes=classes, **VIT[name])
    return model


def _torchvision(name: str) -> Any:
    try:
        return importlib.import_module("torchvision.models")
    except ImportError as error:
        raise HpcddpError(
            f"model `{name}` comes from torchvision, which does not load ({error}): "
            f"install the one made for torch {torch.__version__}"
        ) from error


def _from_factory(name: str, classes: int) -> nn.Module:
    model = load_factory("model", name)(classes)
    if not isinstance(model, nn.Module):
        raise HpcddpError(f"model `{name}` returned {type(model).__name__}; a torch.nn.Module is expected")
    return model
