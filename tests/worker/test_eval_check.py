"""What a rank evaluates is what was its to evaluate."""

from __future__ import annotations

import torch

from hpcddp.data import Batch, Source
from hpcddp.worker.training.eval_check import EvalWatch
from tests.worker import given


def after(due: range, served: Source, source: Source) -> int | None:
    """What a watch over `due` finds, by `asked`, when batches of three come from `served`."""
    watch = EvalWatch(due)
    parts = [torch.tensor(due[begin : begin + 3]) for begin in range(0, len(due), 3)]
    assert sum(len(labels) for _, labels in watch.passing(served.batch(part) for part in parts)) == len(due)
    return watch.mismatch(source)


def test_its_own_samples_pass() -> None:
    """Also one sample, and none."""
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
    """Other images, or another label of one that is looked at; the first and the last always are."""
    source = given.mnist(60)
    assert after(range(20, 60), given.cifar(60), source) == 20
    assert after(range(20, 60), Changed(label_of=59), source) == 59  # type: ignore[arg-type]
    assert EvalWatch(range(3, 5)).mismatch(source) == 3


def test_images_that_are_drawn_at_random_are_told_by_their_labels() -> None:
    """A user's source may do so; its labels stay."""
    noisy = Changed(noise=True)
    assert after(range(20, 60), noisy, noisy) is None  # type: ignore[arg-type]
    assert after(range(20, 60), Changed(noise=True, label_of=20), noisy) == 20  # type: ignore[arg-type]
