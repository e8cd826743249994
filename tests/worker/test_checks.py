"""What ranks compare: their data, the checksums of their shards, and what their models compute."""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hpcddp.core.point import Data
from hpcddp.data.fingerprint import data_fingerprint
from hpcddp.data.opening import OwnSource
from hpcddp.data.sampling import EpochOrder
from hpcddp.worker import gates
from hpcddp.worker.checksums import VALUES, checksum, probe, shards_agree
from hpcddp.worker.rank_result import ForwardScores, RankScores
from hpcddp.worker.training.trainer import make_trainer
from tests.worker import forked, given
from tests.worker.test_gates import batchnorm, small

SAME_DATA, SAME_SCORES = "ranks see the same data", "ranks compute the same"
SOUND = "2 images at the start and at the end, scores at most 0 % apart on 2 ranks"
HERE = "tests.worker.test_checks"


class Files:
    """Numbered pictures, as a listing of a folder has them; `listed`: which file each index stands for."""

    classes, shape = 10, (1, 28, 28)

    def __init__(self, listed: list[int]) -> None:
        self.listed = listed

    def __len__(self) -> int:
        return len(self.listed)

    def picture(self, file: int) -> torch.Tensor:
        draw = torch.Generator().manual_seed(file)
        return torch.randint(256, self.shape, dtype=torch.uint8, generator=draw)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        file = self.listed[index]
        return self.picture(file), file % 10


class Flipped(Files):
    """Mirrored half the time, by torch's, Python's, or the data set's own random numbers."""

    def __init__(self, listed: list[int], draw: Callable[[], float]) -> None:
        super().__init__(listed)
        self.draw = draw

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        picture, label = super().__getitem__(index)
        return picture.flip(-1) if self.draw() < 0.5 else picture, label


def node() -> int:
    return int(os.environ["SUBMITIT_LOCAL_NODEID"])


def listed_otherwise(root: str | None, split: str) -> Files:
    order = list(range(640))
    if node() and split == "train":
        random.Random(7).shuffle(order)
    return Files(order)


def cut_short(root: str | None, split: str) -> Files:
    return Files(list(range(3696 if forked.this_rank() == 1 and split == "train" else 4096)))


def evaluation_cut_short(root: str | None, split: str) -> Files:
    return Files(list(range(60 if forked.this_rank() == 1 and split == "eval" else 64)))


def relabelled(root: str | None, split: str) -> Files:
    """Other labels for the same pictures: classes that one rank counts otherwise."""
    files = Files(list(range(640)))
    if forked.this_rank():
        files.picture, files.listed = lambda file: Files.picture(files, file - 1), [n + 1 for n in files.listed]  # type: ignore[method-assign]
    return files


def flipped(how: str, root: str | None, split: str) -> Files:
    own = random.Random(forked.this_rank())
    return Flipped(list(range(640)), {"torch": lambda: float(torch.rand(())), "python": random.random, "own": own.random}[how])


flipped_by_torch, flipped_by_python, flipped_by_its_own = (functools.partial(flipped, how) for how in ("torch", "python", "own"))


@pytest.mark.dear
@pytest.mark.parametrize(
    ("own", "changes", "says"),
    [
        ("listed_otherwise", {"evaluate": True}, "has another training sample 0"),
        ("listed_otherwise", {"evaluate": True, "loader_workers_per_rank": 1}, "has another training sample 0"),
        ("cut_short", {}, "has 3,696 training samples, rank 0 4,096"),
        ("evaluation_cut_short", {"evaluate": True}, "has 60 evaluation samples, rank 0 64"),
        ("relabelled", {}, "has another training sample 0"),
    ],
)
def test_data_that_differ_on_one_node(tmp_path: Path, own: str, changes: dict[str, Any], says: str) -> None:
    """No other gate sees it, but for an evaluation set of which ranks have other shares."""
    found = forked.ran(tmp_path, small(2, nodes=2, data=Data(name=f"{HERE}:{own}"), **changes)).failed
    assert SAME_DATA in found if own.startswith("evaluation") else list(found) == [SAME_DATA]
    assert found[SAME_DATA].startswith(f"1 of 2 ranks differ from rank 0 on node0: rank 1 on node1 {says}")


@pytest.mark.parametrize("factory", ["flipped_by_torch", "flipped_by_python", "flipped_by_its_own"])
def test_augmentation_does_not_count(tmp_path: Path, factory: str) -> None:
    found = forked.ran(tmp_path, small(2, nodes=2, data=Data(name=f"{HERE}:{factory}")))
    assert found.failed == {}
    words = "images are drawn at random and were not compared"
    assert (words in found.gates[SAME_DATA]["evidence"]) == (factory == "flipped_by_its_own")


def other_order(rank: int) -> None:
    permuted = EpochOrder.__init__

    def init(self: EpochOrder, samples: int, seed: int, epoch: int) -> None:
        permuted(self, samples, seed + rank, epoch)

    EpochOrder.__init__ = init  # type: ignore[method-assign]


def test_another_order_on_one_rank(tmp_path: Path) -> None:
    (found,) = forked.ran(tmp_path, small(), other_order).failed.values()
    assert "rank 1 on node0 reads the training samples in another order" in found


class AnyShape(Files):
    def picture(self, file: int) -> torch.Tensor:
        return torch.zeros(1, 28 + file % 3, 28, dtype=torch.uint8)


def test_samples_of_several_shapes() -> None:
    found = data_fingerprint(OwnSource("any", AnyShape(list(range(50)))), order_of=None, workers=0)
    assert found.images is not None
    assert found.labels is not None
    assert len(set(found.images)) == 3
    assert len(found.images) == len(found.labels) == len(found.places)


def test_random_numbers_stay_as_they_were() -> None:
    torch.manual_seed(3)
    random.seed(3)
    before = torch.random.get_rng_state(), random.getstate()
    data_fingerprint(given.mnist(50), order_of=(1, 10), workers=0)
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert before[1] == random.getstate()


def sums(*ends: str, start: str = "abcd") -> list[dict[str, str]]:
    """By rank: its checksum at the start, one letter of `start`, and at the end."""
    return [{"at the start": start[rank % len(start)], "at the end": end} for rank, end in enumerate(ends)]


@pytest.mark.parametrize(
    ("by_rank", "shards", "passed", "says"),
    [
        (sums(*"efgh"), 4, True, "4 rank(s) hold 4 shard(s), every shard was updated; SHA-256 of rank 0 at the start a"),
        (sums(*"efef", start="ab"), 2, True, "4 rank(s) hold 2 shard(s), 2 copies of each agree"),
        (sums(*"efex", start="ab"), 2, False, "at the end 1 of 4 ranks differ from the first copy of their shard: rank 3 has x"),
        (sums(*"efgd"), 4, False, "1 of 4 shards are unchanged since at the start, such as that of rank 3 (d)"),
        (sums(*"abcd"), 4, False, "no shard was updated: all"),
    ],
)
def test_copies_agree_and_every_shard_is_updated(by_rank: list[dict[str, str]], shards: int, passed: bool, says: str) -> None:
    found = shards_agree(by_rank, shards, trains=True)
    assert found.passed is passed
    assert found.evidence.startswith(says)
    assert shards == 2 or shards_agree(by_rank, shards, trains=False).passed


def test_a_rank_without_a_row() -> None:
    """Of two rows the third rank has none, which no step can change."""
    ranks = [*sums("e", "f"), dict.fromkeys(("at the start", "at the end"), checksum([torch.empty(0, 4)]))]
    assert shards_agree(ranks, 3, trains=True).passed


class Scaled(nn.Module):
    """A plain attribute takes part in what is computed: neither a parameter nor a buffer, so nobody compares or broadcasts it."""

    def __init__(self, classes: int, scale: float) -> None:
        super().__init__()
        self.layers, self.scale = batchnorm(classes), torch.tensor(scale)

    def forward(self, images: torch.Tensor) -> Any:
        return self.layers(images) * self.scale


def scaled_by_rank(classes: int) -> nn.Module:
    return Scaled(classes, 1.0 + 0.1 * forked.this_rank())


def drifts(classes: int) -> nn.Module:
    model, calls = Scaled(classes, 1.0), [0]

    def move(module: nn.Module, _: Any) -> None:
        calls[0] += module.training
        model.scale = torch.tensor(1.0 + 0.1 * forked.this_rank() * (calls[0] > 4))

    model.register_forward_pre_hook(move)
    return model


def cannot_say(classes: int) -> nn.Module:
    model = batchnorm(classes)

    def refuse(module: nn.Module, _: Any) -> None:
        if not module.training:
            raise ValueError("this model trains only\nand says so at length")

    model.register_forward_pre_hook(refuse)
    return model


@pytest.mark.parametrize(("own", "when"), [("scaled_by_rank", "at the start"), ("drifts", "at the end")])
def test_an_attribute_that_differs_by_rank(tmp_path: Path, own: str, when: str) -> None:
    found = forked.ran(tmp_path, small(2, nodes=2, model=f"{HERE}:{own}")).failed
    assert list(found) == [SAME_SCORES]
    assert found[SAME_SCORES].startswith(f"{when} rank 1 on node1 computes other scores than rank 0 from the same 2 images: ")
    assert "10 % apart, but only 0.01 % may be rounding" in found[SAME_SCORES]


@pytest.mark.dear
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": "mnist-cnn", "precision": "bf16"}, SOUND),
        ({"precision": "fp64", "channels_last": True}, SOUND),
        pytest.param({"model": "mnist-cnn", "compile": True}, SOUND, marks=pytest.mark.soak),
        ({"model": f"{HERE}:cannot_say"}, "not compared: on rank 0 the model gave ValueError: this model trains only"),
    ],
)
def test_ranks_that_compute_the_same(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    """Dropout and BatchNorm differ by rank while they train, by design."""
    found = forked.ran(tmp_path, small(2, nodes=2, **changes))
    assert found.failed == {}
    assert found.gates[SAME_SCORES]["evidence"].startswith(says)


class Drawn(nn.Module):
    """Draws at random and counts in its buffers, in evaluation mode too."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.BatchNorm2d(1).eval()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, images: torch.Tensor) -> Any:
        self.calls += 1  # type: ignore[assignment, operator]
        return self.layers(self.frozen(images)) + torch.rand(())


def drawn(classes: int) -> nn.Module:
    return Drawn()


def test_nothing_is_changed() -> None:
    trainer = make_trainer(given.workload(model=f"{HERE}:drawn", parallel="none"), given.mnist(8), torch.device("cpu"), 0)
    module: Any = trainer.module
    module.train()
    module.frozen.eval()
    random, before = torch.random.get_rng_state(), [buffer.clone() for buffer in trainer.module.buffers()]
    first = probe(trainer, (1, 28, 28)).values
    torch.rand(3)
    torch.random.set_rng_state(random)
    assert probe(trainer, (1, 28, 28)).values == first
    assert len(first) == VALUES
    assert torch.equal(random, torch.random.get_rng_state())
    assert all(torch.equal(one, other) for one, other in zip(before, trainer.module.buffers(), strict=True))
    assert [module.training, module.layers.training, module.frozen.training] == [True, True, False]


FIRST, NAN = [8.0, -2.0, 0.0], float("nan")


@pytest.mark.parametrize(
    ("precision", "theirs", "passed"),
    [
        *[("fp64", [8.0, -2.0, 8e-13], True), ("fp64", [8.0, -2.0, 8e-9], False), ("fp32", [8.0, -2.0, 4e-4], True)],
        *[("fp32", [8.0, -2.0, 1.6e-3], False), ("bf16", [8.0, -2.0, 0.16], True), ("bf16", [8.0, -2.0, 0.8], False)],
        *[("fp32", [NAN] * 3, False), ("fp32", [8.0, -2.0], False)],
    ],
)
def test_what_may_be_rounding(precision: str, theirs: list[float], passed: bool) -> None:
    """By the digits that the arithmetic has; relative to the largest score, as small ones are differences of large numbers."""
    by_rank = [RankScores(host="a", forward={"at the start": ForwardScores(values=tuple(each))}) for each in (FIRST, theirs)]
    assert gates.ranks_compute_the_same(by_rank, precision).passed is passed
