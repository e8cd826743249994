"""Training without a fault passes every gate: twenty ways to train."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.point import Ddp
from hpcddp.worker.main import run
from tests.worker import forked, given
from tests.worker.test_gates_planted import small

ALWAYS = {
    "parameters agree",
    "loss is finite",
    "ranks stepped equally",
    "every epoch reshuffled",
    "no restart inside the window",
    "nodes as asked for",
}
BUFFERS, EVALUATION = "buffers agree", "evaluation counts every sample once"
SEVERAL = {"ranks see the same data", "ranks compute the same"}
"""Of several ranks only."""

CNN = {"model": "mnist-cnn"}

WAYS: list[tuple[int, dict[str, Any], dict[str, Any]]] = [
    (1, {}, {}),
    (2, {}, {}),
    (3, {}, {}),
    (1, CNN, {}),
    (2, CNN, {}),
    (3, CNN, {"evaluate": True}),
    (1, {}, {"evaluate": True}),
    (2, {}, {"evaluate": True}),
    (3, {"loader_workers_per_rank": 1}, {"evaluate": True}),
    (2, {"accumulate": 2}, {}),
    (2, {"accumulate": 4, "ddp": Ddp(gradient_as_bucket_view=True)}, {}),
    (2, {"ddp": Ddp(static_graph=True)}, {"comm": "on"}),
    (3, {"precision": "bf16"}, {"comm": "on"}),
    (2, {"precision": "fp64", "batch_per_gpu": 8}, {"comm": "on", "evaluate": True}),
    (2, {"work": "epoch", "warmup": 0}, {}),
    (3, {"steps": 40}, {}),
    (2, {"warmup": 8}, {"gc": "frozen"}),
    (2, {"warmup": 1}, {"stop": "interval", "steps": 10, "max_steps": 60}),
    (2, {}, {"input": "synthetic"}),
    (2, {}, {"input": "io"}),
]
"""Ranks, and changes of the point and of how it is measured."""


@pytest.mark.dear
@pytest.mark.parametrize(("ranks", "changes", "measured"), WAYS, ids=[str(number) for number in range(len(WAYS))])
def test_no_gate_fires(tmp_path: Path, ranks: int, changes: dict[str, Any], measured: dict[str, Any]) -> None:
    """All that have something to look at are there, and pass."""
    what = small(ranks, **changes)
    what = dataclasses.replace(what, measure=dataclasses.replace(what.measure, **measured))
    spec = given.job(tmp_path, what)
    outcomes = forked.ranks(tmp_path / "output", ranks, run, spec_to_dict(spec))
    assert {outcome.code for outcome in outcomes} == {0}, "\n".join(outcome.output for outcome in outcomes)
    end = json.loads((spec.attempt_dir("7", 0) / "end.json").read_text())
    assert [gate for gate in end["gates"] if not gate["passed"]] == []
    expected = ALWAYS | ({BUFFERS} if "model" not in changes else set()) | ({EVALUATION} if measured.get("evaluate") else set())
    expected |= SEVERAL if ranks > 1 else set()
    assert {gate["name"] for gate in end["gates"]} == expected
    assert set(json.loads((spec.attempt_dir("7", 0) / "launch.json").read_text())["gates"]) == expected - {BUFFERS}
    for entry in end["ranks"]:
        assert all(abs(entry["clock"][when]["offset_ns"]) < 1e9 for when in ("start", "end"))
