"""Sharded runs from start to end: their gates, what they count, and what they wait for."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.point import Optimizer, Point
from hpcddp.core.records import steps_file
from hpcddp.worker.checksums import NAME
from hpcddp.worker.main import run
from hpcddp.worker.training import trainer as trainer_module
from hpcddp.worker.training.optimizers import make_optimizer
from hpcddp.worker.training.sharding import METHOD, Sharding, mark_exchanges
from tests.worker import forked, given
from tests.worker.test_gates_planted import SMALL, failed, small, this_rank
from tests.worker.test_sharding import FP64, batch_of, joined, trainer_of

pytestmark = pytest.mark.dear

End = dict[str, Any]


def ran(study: Path, what: Point, plant: Callable[[int], None] = lambda _: None) -> tuple[Path, End]:
    """The attempt's folder and end.json of a run in whose ranks `plant(rank)` was called first."""
    spec = given.job(study, what)
    outcomes = forked.ranks(study / "output", what.ranks, run_with, plant, spec_to_dict(spec), nodes=what.layout.nodes)
    attempt = spec.attempt_dir("7", 0)
    assert (attempt / "end.json").exists(), "\n".join(outcome.output for outcome in outcomes)
    return attempt, json.loads((attempt / "end.json").read_text())


def run_with(plant: Callable[[int], None], spec: dict[str, Any]) -> Any:
    plant(this_rank())
    return run(spec)


def rows(attempt: Path, rank: int) -> list[dict[str, str]]:
    with steps_file(attempt, rank).open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, End]]:
    """Two ranks with BatchNorm, which evaluate 97 samples in 12 and 13 batches; HSDP on two nodes of two ranks."""
    points = {
        "ddp": small(evaluate=True),
        "fsdp": small(evaluate=True, parallel="fsdp"),
        "marked": small(parallel="fsdp", measure={"comm": "on"}),
        "hsdp": small(4, nodes=2, model="mnist-cnn", parallel="hsdp"),
    }
    return {name: ran(tmp_path_factory.mktemp(name), point) for name, point in points.items()}


@pytest.mark.parametrize("name", ["fsdp", "marked", "hsdp"])
def test_a_sound_run(runs: dict[str, tuple[Path, End]], name: str) -> None:
    """It passes every gate that launch.json names."""
    attempt, end = runs[name]
    assert failed(end) == {}
    assert {*json.loads((attempt / "launch.json").read_text())["gates"]} <= {gate["name"] for gate in end["gates"]}


def test_it_says_what_ranks_hold(runs: dict[str, tuple[Path, End]]) -> None:
    """Shards, and copies of them where each node has one."""
    words = {name: next(gate["evidence"] for gate in end["gates"] if gate["name"] == NAME) for name, (_, end) in runs.items()}
    assert words["fsdp"].startswith("2 rank(s) hold 2 shard(s), every shard was updated; SHA-256 of rank 0 at the start ")
    assert words["hsdp"].startswith("4 rank(s) hold 2 shard(s), 2 copies of each agree, every shard was updated; ")


def test_it_counts_what_ddp_counts(runs: dict[str, tuple[Path, End]]) -> None:
    """The evaluation, though ranks have unlike numbers of batches, and the operations of the model."""
    ddp, fsdp = runs["ddp"][1], runs["fsdp"][1]
    assert fsdp["evaluation"]["samples"] == 97
    assert fsdp["evaluation"] == pytest.approx(ddp["evaluation"], rel=1e-5)
    assert fsdp["flops_per_sample"] == ddp["flops_per_sample"]


def test_a_training_is_ddps(tmp_path: Path) -> None:
    """Its epochs have DDP's losses, rates and accuracies, of the parameters' average, too."""
    recipe = Optimizer(lr=0.05, ema_decay=0.9, schedule="cosine")
    of_kind = []
    for parallel in ("ddp", "fsdp"):
        point = small(parallel=parallel, work="train", model="mnist-cnn", measure={"epochs": 2}, optimizer=recipe)
        attempt, end = ran(tmp_path / parallel, point)
        assert failed(end) == {}
        with (attempt / "epochs.csv").open() as file:
            of_kind.append(
                [{name: row[name] for name in row if name not in ("train_ns", "elapsed_ns")} for row in csv.DictReader(file)]
            )
    ddp, fsdp = of_kind
    for own, other in zip(fsdp, ddp, strict=True):
        assert {name: float(cell) for name, cell in own.items()} == pytest.approx(
            {k: float(v) for k, v in other.items()}, rel=1e-5
        )


def test_what_is_not_marked_is_unknown(runs: dict[str, tuple[Path, End]]) -> None:
    """Without `comm: on` nobody knows what of forward and backward was waiting: no row says that nothing was."""
    attempt, end = runs["fsdp"]
    assert {row["comm_exposed_ns"] for row in rows(attempt, 0)} == {""}
    assert "sharded_exchange" not in end


def test_what_is_marked_adds_up(runs: dict[str, tuple[Path, End]]) -> None:
    """The means of the three waits are those of the steps' exposed communication; the record names the method."""
    attempt, end = runs["marked"]
    found = end["sharded_exchange"]
    assert found.pop("method") == METHOD
    assert min(found.values()) > 0
    timed = [row for rank in (0, 1) for row in rows(attempt, rank) if not int(row["flags"]) & 1]
    exposed_s = sum(int(row["comm_exposed_ns"]) for row in timed) / len(timed) / 1e9
    assert sum(found.values()) == pytest.approx(exposed_s, rel=1e-9)


DELAY_S = 0.05

GATHER, SCATTER = ("all_gather_single", "all_gather_into_tensor"), ("reduce_scatter_single", "reduce_scatter_tensor")
"""What fully_shard calls: in newer torch, and before."""


def slow_collectives(names: tuple[str, str]) -> dict[str, float]:
    """Seconds of the parts of a step in which each gathering, or each scattering, is held up: the least of five, since what else
    runs only adds to them."""
    (group, source), steps = joined(), list[dict[str, float]]()
    trainer = trainer_of(group, source, 2, {**FP64, "parallel": "fsdp"})
    slow = next(name for name in names if hasattr(dist, name))
    real, last = getattr(dist, slow), [0.0]

    def delayed(*arguments: Any, **options: Any) -> Any:
        time.sleep(DELAY_S)
        return real(*arguments, **options)

    def mark(part: str) -> None:
        now = time.perf_counter()
        steps[-1][part] = steps[-1].get(part, 0.0) + now - last[0]
        last[0] = now

    assert trainer.sharding
    trainer.step(batch_of(0, group, source), lambda _: None)
    mark_exchanges(trainer.sharding, mark)
    setattr(dist, slow, delayed)
    for step in range(5):
        steps.append({})
        last[0] = time.perf_counter()
        trainer.step(batch_of(step, group, source), mark)
    group.leave()
    return {part: min(parts[part] for parts in steps) for part in steps[0]}


@pytest.mark.timed
def test_delays_lie_in_their_parts(tmp_path: Path) -> None:
    """Three things are gathered for forward (the stem, which stays, a block and the head) and two again for backward; gradients
    of all three are scattered. Each delay is in the part of its collective, and none elsewhere."""
    gathering, scattering = (forked.values(tmp_path / names[0], 2, slow_collectives, names)[0] for names in (GATHER, SCATTER))
    assert gathering["all_gather_forward"] == pytest.approx(3 * DELAY_S, abs=0.5 * DELAY_S)
    assert gathering["all_gather_backward"] == pytest.approx(2 * DELAY_S, abs=0.5 * DELAY_S)
    assert scattering["reduce_scatter"] == pytest.approx(3 * DELAY_S, abs=0.5 * DELAY_S)
    for parts, slow in ((gathering, {"all_gather_forward", "all_gather_backward"}), (scattering, {"reduce_scatter"})):
        assert max(seconds for part, seconds in parts.items() if part not in slow) < 0.5 * DELAY_S, parts


def test_forwards_without_gradients_are_not_marked() -> None:
    """As those of an evaluation, which belong to no step."""
    marks: list[str] = []
    module = torch.nn.Linear(2, 2)
    mark_exchanges(Sharding(module, [module]), marks.append)
    with torch.no_grad():
        module(torch.zeros(1, 2))
    assert marks == []
    module(torch.zeros(1, 2))
    assert marks == ["forward", "all_gather_forward"]


def stale(rank: int) -> None:
    """The optimizer of rank 1 was made of other tensors than those the model uses."""
    real = make_optimizer

    def make(chosen: Any, module: torch.nn.Module) -> torch.optim.Optimizer:
        copy = torch.nn.ParameterList([torch.nn.Parameter(each.detach().clone()) for each in module.parameters()])
        return real(chosen, copy if rank == 1 else module)

    vars(trainer_module)["make_optimizer"] = make


def test_a_shard_that_is_not_updated(tmp_path: Path) -> None:
    """The gate names the rank whose shard stayed as it was."""
    found = failed(ran(tmp_path, small(parallel="fsdp", model="mnist-cnn"), stale)[1])
    assert list(found) == [NAME]
    assert "1 of 2 shards are what they were at the start, so that of rank 1" in found[NAME]


def no_all_reduce(_: int) -> None:
    """Copies average nothing with each other: each node trains for itself."""
    vars(dist)["all_reduce"] = lambda *arguments, **options: None


def test_copies_that_drift_apart(tmp_path: Path) -> None:
    """Gradients that are scattered within a node and not averaged over nodes show before the first timed step."""
    point = small(4, nodes=2, model="mnist-cnn", parallel="hsdp", data=SMALL)
    found = failed(ran(tmp_path, point, no_all_reduce)[1])
    assert "after step 1 2 of 4 ranks differ from the first copy of their shard: rank 2 has" in found[NAME]
