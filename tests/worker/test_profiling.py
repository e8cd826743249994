"""`measure.profile_steps`, by real ranks."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hpcddp.core.point import Data
from hpcddp.core.records import trace_file
from tests.worker import given
from tests.worker.test_run import read, rows, run_job


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records of two ranks of which the second keeps a profile of three steps."""
    what = given.point(2, measure={"profile_steps": 3, "profile_ranks": (1,)})
    attempt, outcomes = run_job(tmp_path_factory.mktemp("profiled"), what)
    assert [outcome.code for outcome in outcomes] == [0, 0], "\n".join(outcome.output for outcome in outcomes)
    return attempt


def trace(attempt: Path, rank: int) -> dict[str, Any]:
    with gzip.open(trace_file(attempt, rank), "rt", encoding="utf-8") as text:
        found: dict[str, Any] = json.load(text)
    return found


@pytest.mark.dear
def test_the_trace_shows_each_step_and_its_all_reduces(profiled: Path) -> None:
    """Three steps are marked as Perfetto and HTA look for them; DDP's buckets of the MNIST CNN travel in each."""
    names = [event["name"] for event in trace(profiled, 1)["traceEvents"]]
    assert len({name for name in names if name.startswith("ProfilerStep#")}) == 3
    assert names.count("gloo:all_reduce") == 6


def test_the_trace_knows_its_rank(profiled: Path) -> None:
    """HTA tells the ranks' traces apart by distributedInfo."""
    known = trace(profiled, 1)["distributedInfo"]
    assert (known["backend"], known["rank"], known["world_size"]) == ("gloo", 1, 2)


def test_other_ranks_keep_none(profiled: Path) -> None:
    """All ranks step under the profiler, the chosen ones leave a file; nothing half-written stays."""
    assert sorted(file.name for file in (profiled / "ranks").iterdir()) == [
        "00000.steps.csv",
        "00001.steps.csv",
        "00001.trace.json.gz",
    ]


def test_profiled_steps_are_in_no_record(profiled: Path) -> None:
    """Rows are the two warm-up and four timed steps, and all gates pass."""
    end = read(profiled / "end.json")
    assert end["steps"] == len(rows(profiled, 0)) == len(rows(profiled, 1)) == 6
    assert all(gate["passed"] for gate in end["gates"])


class Strict(nn.Module):
    """One layer, of which gradients are taken while it trains, and only then."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(784, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        assert self.training == torch.is_grad_enabled()
        out: torch.Tensor = self.layer(images.flatten(1))
        return out


def evaluated(study: Path, profile_steps: int) -> dict[str, Any]:
    """end.json of a run that is evaluated."""
    model, data = "tests.worker.test_profiling:Strict", Data(name="tests.worker.test_evaluate:tiny")
    measure = {"profile_steps": profile_steps, "profile_ranks": (0,)}
    attempt, (outcome,) = run_job(study, given.point(1, model=model, data=data, evaluate=True, measure=measure))
    assert outcome.code == 0, outcome.output
    found: dict[str, Any] = read(attempt / "end.json")
    return found


def test_what_is_evaluated_is_what_the_timed_steps_made(tmp_path: Path) -> None:
    """The profile's steps come after it, and train as the timed ones did; so does the copy whose operations are counted."""
    plain, profiled = evaluated(tmp_path / "plain", 0), evaluated(tmp_path / "profiled", 3)
    assert plain["evaluation"] == profiled["evaluation"]
    assert plain["flops_per_sample"] == profiled["flops_per_sample"] is not None
