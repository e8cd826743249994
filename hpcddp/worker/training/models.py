"""The models by name, of 224 x 224 as published and of 32 x 32 in their usual small variants; and what a sample takes."""

from __future__ import annotations

import copy
import importlib
from typing import Any

import torch
from torch import nn

from hpcddp.core.catalog import MODELS, is_factory, load_factory
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Workload
from hpcddp.core.schema import did_you_mean
from hpcddp.data import Source

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
            f"install the version for torch {torch.__version__}"
        ) from error


def _from_factory(name: str, classes: int) -> nn.Module:
    model = load_factory("model", name)(classes)
    if not isinstance(model, nn.Module):
        raise HpcddpError(f"model `{name}` returned {type(model).__name__}; a torch.nn.Module is expected")
    return model


SAMPLES = 2
"""BatchNorm takes no single sample while training."""


def flops_per_sample(module: nn.Module, shape: tuple[int, ...]) -> int | None:
    """Floating-point operations of forward and backward for a sample of `shape` (channels, height, width).

    A multiplication and an addition are two. Counted are products and convolutions, as in published figures for models, not
    what normalisation, activations and the optimizer do. On a copy without data, so that nothing is computed and no GPU is
    touched; None where that fails: a model that reads the values of its input, an operator that knows no shapes.
    """
    try:
        return _count(_without_data(module), shape)
    except Exception:  # the user's own code, and any operator of torch, may raise anything; the figure is not worth a run
        return None


def flops_of_sharded(workload: Workload, source: Source) -> int | None:
    """The same of a model whose parameters are sharded, which cannot be copied: of another one of its kind."""
    try:
        with torch.device("meta"):
            model = build_model(workload.model, classes=source.classes, height=source.shape[1], seed=workload.seed)
    except Exception:  # as above
        return None
    return flops_per_sample(model, source.shape)


def _count(model: nn.Module, shape: tuple[int, ...]) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    images = torch.empty(SAMPLES, *shape, dtype=next(model.parameters()).dtype, device="meta")
    with FlopCounterMode(display=False) as counter, torch.enable_grad():
        model(images).sum().backward()
    return int(counter.get_total_flops()) // SAMPLES


def _without_data(module: nn.Module) -> nn.Module:
    """A copy on the meta device; parameters and buffers are not copied on the way, as a full GPU would not hold them twice."""
    memo: dict[int, Any] = {
        id(value): nn.Parameter(torch.empty_like(value, device="meta"), requires_grad=value.requires_grad)
        for value in module.parameters()
    }
    memo |= {id(value): torch.empty_like(value, device="meta") for value in module.buffers()}
    model = copy.deepcopy(module, memo).train()
    for part in model.modules():
        if isinstance(part, nn.SyncBatchNorm):
            part.eval()  # while training it talks to the other ranks
    return model
