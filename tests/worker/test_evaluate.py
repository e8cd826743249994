"""Evaluation counts every sample once, whatever the number of ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.point import Data
from hpcddp.data import eval_batches
from hpcddp.data.source import TensorSource
from hpcddp.worker.main import run
from hpcddp.worker.rank_result import EvaluationSums
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.training.evaluate import combine, evaluate_share
from hpcddp.worker.training.trainer import make_trainer
from tests.worker import forked, given

SAMPLES = 97
"""A prime: no number of ranks divides it."""


def evaluated(source: TensorSource) -> dict[str, Any] | None:
    group = join(this_rank("local"), "cpu")
    rank = group.rank
    trainer = make_trainer(given.workload(precision="fp64"), source, group.device, rank.rank)
    batches = eval_batches(source, batch_size=4, rank=rank.rank, ranks=rank.world, workers=0)
    shares = [EvaluationSums(**each) for each in group.gather("evaluation", vars(evaluate_share(trainer, batches)))]
    group.leave()
    return vars(combine(shares)) if shares else None


@pytest.fixture(scope="module")
def single_rank(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What one rank counts."""
    (found,) = forked.values(tmp_path_factory.mktemp("alone"), 1, evaluated, given.mnist(SAMPLES))
    return found


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_counts_are_exact(tmp_path: Path, single_rank: dict[str, Any], ranks: int) -> None:
    """97 samples are 97 at 1, 2, 3 and 5 ranks, as many of them right, with the same mean loss."""
    counts = forked.values(tmp_path, ranks, evaluated, given.mnist(SAMPLES))[0]
    assert (counts["samples"], counts["correct"]) == (SAMPLES, single_rank["correct"])
    assert single_rank["samples"] == SAMPLES
    assert counts["loss"] == pytest.approx(single_rank["loss"], rel=1e-12)


def buffers_used(source: TensorSource) -> list[float]:
    """The running mean with which this rank has evaluated, after having seen other samples than its peers."""
    group = join(this_rank("local"), "cpu")
    workload = given.workload(model="resnet18", data=Data(name="synthetic-cifar10"))
    trainer = make_trainer(workload, source, group.device, group.rank.rank)
    trainer.module.register_buffer("seen", torch.full((1,), float(group.rank.rank + 1)))
    evaluate_share(trainer, [source.batch(torch.tensor([0, 1]))])
    group.leave()
    value: list[float] = trainer.module.get_buffer("seen").tolist()
    return value


def test_all_ranks_evaluate_the_same_model(tmp_path: Path) -> None:
    """BatchNorm's running statistics differ between ranks after a step: all take rank 0's."""
    assert forked.values(tmp_path, 2, buffers_used, given.cifar(4)) == [[1.0], [1.0]]


@pytest.mark.dear
def test_a_run_records_its_evaluation(tmp_path: Path) -> None:
    """end.json holds samples, correct and loss, and the gate compares them with the size of the set."""
    data = Data(name="tests.worker.test_evaluate:tiny")
    spec = given.job(tmp_path, given.point(2, data=data, evaluate=True, loader_workers_per_rank=1))
    forked.values(tmp_path / "output", 2, run, spec_to_dict(spec))
    end = json.loads((spec.attempt_dir("7", 0) / "end.json").read_text())
    assert end["evaluation"]["samples"] == SAMPLES
    assert set(end["evaluation"]) == {"samples", "correct", "loss"}
    (found,) = [gate for gate in end["gates"] if gate["name"] == "evaluation counts every sample once"]
    assert (found["passed"], found["evidence"]) == (True, "97 of 97 samples: 48 to 49 by each of 2 ranks")


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
