"""Operations of training, counted without computing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.telemetry.flops import flops_per_sample
from hpcddp.worker.training.models import build_model
from tests.worker import forked

PUBLISHED_GMAC = {"resnet50": 4.089, "resnet18": 1.814, "vgg11": 7.609}
"""Forward at 224 x 224: `_ops` of torchvision's weights (torchvision.models, table of classification weights, GFLOPS)."""

FIRST_CONVOLUTION_MAC = {"resnet50": 64 * 112**2 * 3 * 7**2, "resnet18": 64 * 112**2 * 3 * 7**2, "vgg11": 64 * 224**2 * 3 * 3**2}


def _counted() -> dict[str, int | None]:
    return {name: flops_per_sample(build_model(name, classes=1000, height=224, seed=1), (3, 224, 224)) for name in PUBLISHED_GMAC}


@pytest.mark.dear
def test_published_figures(tmp_path: Path) -> None:
    """Two operations a multiplication; backward is twice forward, but for the gradient of the images, which nobody needs."""
    (found,) = forked.values(tmp_path, 1, _counted)
    for name, gmac in PUBLISHED_GMAC.items():
        assert found[name] == pytest.approx(2 * (3 * gmac * 1e9 - FIRST_CONVOLUTION_MAC[name]), rel=1e-3)


def _linear_by_hand() -> int | None:
    return flops_per_sample(nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 2)), (3, 2, 2))


def test_by_hand(tmp_path: Path) -> None:
    """12 x 5 forward and for the weights; 5 x 2 forward, for the weights and the input: 150 products, 300 operations."""
    assert forked.values(tmp_path, 1, _linear_by_hand) == [300]


def _among_ranks() -> tuple[int | None, bool]:
    group = join(this_rank("local"), "cpu")
    model = build_model("resnet18", classes=10, height=32, seed=1).double().to(memory_format=torch.channels_last)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = flops_per_sample(model, (3, 32, 32)) if group.rank.rank == 0 else None
    same = all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    group.leave()
    return found, same and all(part.training for part in model.modules()) and all(p.grad is None for p in model.parameters())


@pytest.mark.dear
def test_one_rank_counts_alone(tmp_path: Path) -> None:
    """Statistics over ranks, double precision and channels last count the same, and nothing of the model changes."""
    assert forked.values(tmp_path, 2, _among_ranks) == [(3_328_997_376, True), (None, True)]


class Peeks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        flat = images.flatten(1)
        scores: torch.Tensor = self.layer(flat * 2 if flat.sum().item() > 0 else flat)
        return scores


def _peeks() -> int | None:
    return flops_per_sample(Peeks(), (3, 2, 2))


def test_a_model_that_cannot_be_counted_is_unknown(tmp_path: Path) -> None:
    """A model that decides by the values of its input has no count without values; the run goes on without the figure."""
    assert forked.values(tmp_path, 1, _peeks) == [None]
