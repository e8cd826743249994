"""Evaluation counts every sample once, whatever the number of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hpcddp.core.point import Data
from hpcddp.data import Batch, Source, eval_batches
from hpcddp.data.source import TensorSource
from hpcddp.worker.rank_result import EvaluationSums
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.training.evaluate import EvalWatch, combine, evaluate_share
from hpcddp.worker.training.trainer import make_trainer
from tests.worker import forked, given

SAMPLES = 97
"""A prime: no number of ranks divides it."""


def evaluated(group: ProcessGroup, source: TensorSource) -> dict[str, Any] | None:
    rank = group.rank
    trainer = make_trainer(given.workload(precision="fp64"), source, group.device, rank.rank)
    batches = eval_batches(source, batch_size=4, rank=rank.rank, ranks=rank.world, workers=0)
    shares = [EvaluationSums(**each) for each in group.gather("evaluation", vars(evaluate_share(trainer, batches)))]
    return vars(combine(shares)) if shares else None


def test_counts_are_exact(tmp_path: Path) -> None:
    one, *_ = forked.in_group(tmp_path, 1, evaluated, given.mnist(SAMPLES))
    counts, *_ = forked.in_group(tmp_path, 3, evaluated, given.mnist(SAMPLES))
    assert (counts["samples"], counts["correct"]) == (one["samples"], one["correct"]) == (SAMPLES, one["correct"])
    assert counts["loss"] == pytest.approx(one["loss"], rel=1e-12)


def buffers_used(group: ProcessGroup, source: TensorSource) -> list[float]:
    """The running mean with which this rank has evaluated, after having seen other samples than its peers."""
    workload = given.workload(model="resnet18", data=Data(name="synthetic-cifar10"))
    trainer = make_trainer(workload, source, group.device, group.rank.rank)
    trainer.module.register_buffer("seen", torch.full((1,), float(group.rank.rank + 1)))
    evaluate_share(trainer, [source.batch(torch.tensor([0, 1]))])
    value: list[float] = trainer.module.get_buffer("seen").tolist()
    return value


def test_all_ranks_evaluate_the_same_model(tmp_path: Path) -> None:
    assert forked.in_group(tmp_path, 2, buffers_used, given.cifar(4)) == [[1.0], [1.0]]


class Tiny:
    """A user's own data set."""

    classes = 10

    def __init__(self, samples: int) -> None:
        self._source = given.mnist(samples)

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        images, labels = self._source.batch(torch.tensor([index]))
        return images[0], int(labels)


def tiny(root: str | None, split: str) -> Tiny:
    assert root is None
    return Tiny(SAMPLES if split == "eval" else 64)


def after(due: range, served: Source, source: Source) -> int | None:
    """What a watch over `due` finds, by `asked`, when batches of three come from `served`."""
    watch = EvalWatch(due)
    parts = [torch.tensor(due[begin : begin + 3]) for begin in range(0, len(due), 3)]
    assert sum(len(labels) for _, labels in watch.passing(served.batch(part) for part in parts)) == len(due)
    return watch.mismatch(source)


def test_its_own_samples_pass() -> None:
    source = given.mnist(60)
    for due in (range(20, 60), range(7, 8), range(5, 5)):
        assert after(due, source, source) is None


class Changed:
    """MNIST-like samples of which one or more come otherwise."""

    def __init__(self, *, label_of: int | None = None, noise: bool = False) -> None:
        self._source = given.mnist(60)
        self._label_of, self._noise = label_of, noise

    def __getattr__(self, name: str) -> object:
        return getattr(self._source, name)

    def __len__(self) -> int:
        return 60

    def batch(self, indices: torch.Tensor) -> Batch:
        images, labels = self._source.batch(indices)
        if self._noise:
            images = torch.randint_like(images, 256)
        return images, labels + (indices == (-1 if self._label_of is None else self._label_of))


def test_other_samples_do_not() -> None:
    source = given.mnist(60)
    assert after(range(20, 60), given.cifar(60), source) == 20
    assert after(range(20, 60), Changed(label_of=59), source) == 59  # type: ignore[arg-type]
    assert EvalWatch(range(3, 5)).mismatch(source) == 3


def test_images_that_are_drawn_at_random_are_told_by_their_labels() -> None:
    noisy = Changed(noise=True)
    assert after(range(20, 60), noisy, noisy) is None  # type: ignore[arg-type]
    assert after(range(20, 60), Changed(noise=True, label_of=20), noisy) == 20  # type: ignore[arg-type]
