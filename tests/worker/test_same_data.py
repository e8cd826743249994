"""Ranks that see different data: length, order and content are compared at the start, over real gloo ranks."""

from __future__ import annotations

import functools
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.point import Data, Point
from hpcddp.data.fingerprint import data_fingerprint
from hpcddp.data.opening import OwnSource
from hpcddp.data.sampling import EpochOrder
from hpcddp.worker.main import run
from tests.worker import forked, given
from tests.worker.test_gates_planted import planted, small, this_rank

GATE = "ranks see the same data"
MODULE = "tests.worker.test_same_data"


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
    """The second node's file server lists the folder in another order."""
    order = list(range(640))
    if node() and split == "train":
        random.Random(7).shuffle(order)
    return Files(order)


def cut_short(root: str | None, split: str) -> Files:
    """A copy that was broken off, on one rank."""
    return Files(list(range(3696 if this_rank() == 1 and split == "train" else 4096)))


def evaluation_cut_short(root: str | None, split: str) -> Files:
    return Files(list(range(60 if this_rank() == 1 and split == "eval" else 64)))


def relabelled(root: str | None, split: str) -> Files:
    """Other labels for the same pictures: classes that one rank counts otherwise."""
    files = Files(list(range(640)))
    if this_rank():
        files.picture, files.listed = lambda file: Files.picture(files, file - 1), [n + 1 for n in files.listed]  # type: ignore[method-assign]
    return files


def flipped(how: str, root: str | None, split: str) -> Files:
    own = random.Random(this_rank())
    return Flipped(list(range(640)), {"torch": lambda: float(torch.rand(())), "python": random.random, "own": own.random}[how])


flipped_by_torch, flipped_by_python, flipped_by_its_own = (functools.partial(flipped, how) for how in ("torch", "python", "own"))


def what(factory: str, **changes: Any) -> Point:
    return small(2, nodes=2, data=Data(name=f"{MODULE}:{factory}"), **changes)


def found_in(study: Path, point: Point) -> tuple[dict[str, Any], list[str]]:
    """The gate on data, and the names of those that failed."""
    spec = given.job(study, point)
    outcomes = forked.ranks(study / "output", point.ranks, run, spec_to_dict(spec), nodes=point.layout.nodes)
    end = json.loads((spec.attempt_dir("7", 0) / "end.json").read_text())
    assert end["state"] == "done", "\n".join(outcome.output for outcome in outcomes)
    gates = {gate["name"]: gate for gate in end["gates"]}
    return gates[GATE], [name for name, gate in gates.items() if not gate["passed"]]


@pytest.mark.dear
@pytest.mark.parametrize("workers", [0, 1])
def test_a_listing_in_another_order_on_one_node(tmp_path: Path, workers: int) -> None:
    """Same files, same length, and no other gate sees it: the sample at an index is another one."""
    found, failed = found_in(tmp_path, what("listed_otherwise", loader_workers_per_rank=workers, evaluate=True))
    assert failed == [GATE]
    assert found["evidence"].startswith("1 of 2 ranks differ from rank 0 on node0: rank 1 on node1 has another training sample 0")


def test_fewer_samples_on_one_rank(tmp_path: Path) -> None:
    """Its permutation is another one, of other samples; the number of steps is the sweep's, and says nothing."""
    found, failed = found_in(tmp_path, what("cut_short"))
    assert failed == [GATE]
    says = "rank 1 on node1 has 3,696 training samples, rank 0 4,096"
    assert found["evidence"] == f"1 of 2 ranks differ from rank 0 on node0: {says}"


def test_an_evaluation_set_that_is_shorter_on_one_rank(tmp_path: Path) -> None:
    """Compared as well, where it is evaluated."""
    found, failed = found_in(tmp_path, what("evaluation_cut_short", evaluate=True))
    assert GATE in failed
    assert found["evidence"].endswith("rank 1 on node1 has 60 evaluation samples, rank 0 64")


def test_labels_alone_tell(tmp_path: Path) -> None:
    """Equal pictures under other labels."""
    found, failed = found_in(tmp_path, what("relabelled"))
    assert failed == [GATE]
    assert "rank 1 on node1 has another training sample 0" in found["evidence"]


@pytest.mark.parametrize("factory", ["flipped_by_torch", "flipped_by_python", "flipped_by_its_own"])
def test_augmentation_does_not_count(tmp_path: Path, factory: str) -> None:
    """Transforms draw by rank, as they should: equal samples pass, and where pictures cannot be compared the gate says so."""
    found, failed = found_in(tmp_path, what(factory))
    assert failed == []
    assert ("pictures are drawn at random and were not compared" in found["evidence"]) == (factory == "flipped_by_its_own")


def other_order(rank: int) -> None:
    """A rank that shuffles by another seed."""
    permuted = EpochOrder.__init__

    def init(self: EpochOrder, samples: int, seed: int, epoch: int) -> None:
        permuted(self, samples, seed + rank, epoch)

    EpochOrder.__init__ = init  # type: ignore[method-assign]


def test_another_order_on_one_rank(tmp_path: Path) -> None:
    """Some samples would be trained on twice in an epoch, and some never."""
    _, end = planted(tmp_path, small(), other_order)
    (found,) = [gate["evidence"] for gate in end["gates"] if not gate["passed"]]
    assert "rank 1 on node0 takes the training samples in another order" in found


class AnyShape(Files):
    """Pictures of other sizes, as a batch of one sample can have them."""

    def picture(self, file: int) -> torch.Tensor:
        return torch.zeros(1, 28 + file % 3, 28, dtype=torch.uint8)


def test_samples_of_several_shapes() -> None:
    """Are compared one by one."""
    found = data_fingerprint(OwnSource("any", AnyShape(list(range(50)))), order_of=None, workers=0)
    assert found.images is not None
    assert found.labels is not None
    assert len(set(found.images)) == 3
    assert len(found.images) == len(found.labels) == len(found.places)


def test_random_numbers_stay_as_they_were() -> None:
    """What is drawn after the comparison is what would have been drawn without it."""
    torch.manual_seed(3)
    random.seed(3)
    before = torch.random.get_rng_state(), random.getstate()
    data_fingerprint(given.mnist(50), order_of=(1, 10), workers=0)
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert before[1] == random.getstate()
