"""torch.compile is done before the first step and leaves no trace in what is trained."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.point import Ddp
from hpcddp.worker.main import run
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import ProcessGroup, join
from hpcddp.worker.training.ddp_warmup import compile_now
from hpcddp.worker.training.trainer import make_trainer
from tests.worker import forked, given

MODEL = "tests.worker.test_compiling:drawing"


def drawing(classes: int) -> nn.Module:
    """A model with what a step leaves behind: BatchNorm's statistics, and random numbers drawn."""
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(784, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()),
        *(nn.Dropout(0.5), nn.Linear(512, classes)),
    )


def without_a_compiler() -> None:
    """torch.compile as it is, up to the point where it would write C++ (half a minute): graphs are captured and split."""
    torch.compile = functools.partial(torch.compile, backend="aot_eager")


def graphs() -> int:
    from torch._dynamo.utils import counters

    return int(counters["aot_autograd"]["total"])


def compile_each(chosen: list[Ddp]) -> list[dict[str, Any]]:
    without_a_compiler()
    group = join(this_rank("local"), "cpu")
    found = [compile_and_step(options, group) for options in chosen]
    group.leave()
    return found


def compile_and_step(options: Ddp, group: ProcessGroup) -> dict[str, Any]:
    """What compiling changed, and how many graphs were made by it and by three steps after it."""
    torch._dynamo.reset()
    source, graphs_before = given.mnist(8), graphs()
    trainer = make_trainer(given.workload(model=MODEL, compile=True, ddp=options), source, group.device, group.rank.rank)
    batch = source.batch(torch.tensor([0, 1, 2, 3]))
    before = [part.clone() for part in trainer.module.state_dict().values()], torch.get_rng_state()
    seconds = compile_now(trainer, batch)
    untouched = {
        "state": all(torch.equal(*pair) for pair in zip(before[0], trainer.module.state_dict().values(), strict=True)),
        "random numbers": torch.equal(before[1], torch.get_rng_state()),
        "gradients": all(part.grad is None for part in trainer.module.parameters()),
        "optimizer": not trainer.optimizer.state,
    }
    compiled = graphs() - graphs_before
    for _ in range(3):
        trainer.step(batch, lambda _: None)
    later = graphs() - graphs_before - compiled
    return {"untouched": untouched, "seconds": seconds, "graphs": compiled, "graphs_later": later}


@pytest.mark.dear
def test_compiling_leaves_no_trace(tmp_path: Path) -> None:
    """Parameters, BatchNorm's statistics, random numbers and the optimizer are as before, and no step compiles any more.

    The graph is split at DDP's buckets, so that gradients still travel during backward.
    """
    for of_rank in forked.values(tmp_path, 2, compile_each, [Ddp(), Ddp(static_graph=True)]):
        for found in of_rank:
            assert all(found["untouched"].values()), found["untouched"]
            assert found["graphs"] > 1
            assert found["graphs_later"] == 0
            assert 0 < found["seconds"] < forked.TIMEOUT_S


def run_compiled(spec: dict[str, Any]) -> Any:
    without_a_compiler()
    return run(spec)


@pytest.mark.dear
def test_the_record_says_how_long_it_took(tmp_path: Path) -> None:
    """`compile_s` stands in end.json, beside the steps; buckets are counted from the first step on."""
    spec = given.job(tmp_path, given.point(1, model=MODEL, compile=True, measure={"comm": "on"}))
    forked.values(tmp_path / "output", 1, run_compiled, spec_to_dict(spec))
    end = json.loads((spec.attempt_dir("7", 0) / "end.json").read_text())
    assert end["compile_s"] > 0
    assert all(gate["passed"] for gate in end["gates"])
    assert [(rank["rows"], rank["bucket_rows"] >= rank["rows"]) for rank in end["ranks"]] == [(6, True)]
