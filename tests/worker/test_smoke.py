"""The smoke test: what it sees of a good and of a bad set of nodes."""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.point import Data, Optimizer
from hpcddp.worker import small_job, smoke
from tests.worker import forked, given


def run_on_two_nodes(study: Path, **changes: Any) -> dict[str, Any]:
    """smoke.json of one rank on each of two nodes; DATA is a folder on the first only."""
    spec = given.job(study, given.point(2, nodes=2, **changes), data_root="$DATA/mnist")
    outcomes = forked.ranks(study / "output", 2, smoke_in_rank, spec_to_dict(spec), study, nodes=2)
    assert [outcome.code for outcome in outcomes] == [0, 0], "\n".join(outcome.output for outcome in outcomes)
    summary: dict[str, Any] = json.loads((study / ".jobs" / "7.smoke" / "smoke.json").read_text())
    assert summary == outcomes[0].value
    return summary


def smoke_in_rank(spec: dict[str, Any], study: Path) -> dict[str, Any]:
    node = os.environ["SLURMD_NODENAME"]
    (study / "node0" / "mnist").mkdir(parents=True, exist_ok=True)
    os.environ["DATA"] = str(study / node)
    return smoke.run(spec)


def test_a_folder_that_one_node_does_not_see(tmp_path: Path) -> None:
    """Named with the host; all else of the two nodes is found to work, down to a sum over both."""
    summary = run_on_two_nodes(tmp_path)
    assert summary["ok"] is False
    assert summary["data"]["seen_by"] == ["node0"]
    assert summary["data"]["missing_on"] == ["node1"]
    (problem,) = summary["problems"]
    assert problem.startswith("the data folder $DATA/mnist is not there")
    assert problem.endswith("on node1")
    assert [found["summed"] for found in summary["ranks"]] == [2, 2]
    assert summary["ranks"][1]["versions"]["torch"]


def test_a_folder_without_its_data(tmp_path: Path) -> None:
    """Said once, with what to do, as is a set that is there and not what its manifest says; not where batches are synthetic."""
    (tmp_path / "data").mkdir()
    summary = run_on_two_nodes(tmp_path, data=Data(name="bigmnist", root=str(tmp_path / "data")))
    (problem,) = summary["problems"]
    assert problem.startswith(f"no data `bigmnist` in {tmp_path / 'data'}: `hpcddp data prepare bigmnist --root")
    data, measure = Data(name="bigmnist", root=str(tmp_path / "data")), {"input": "synthetic"}
    assert run_on_two_nodes(tmp_path / "synthetic", data=data, measure=measure)["problems"] == []
    (tmp_path / "data" / "bigmnist.json").write_text("{}")
    (problem,) = run_on_two_nodes(tmp_path / "again", data=data)["problems"]
    assert str(tmp_path / "data" / "bigmnist.json") in problem


def test_no_gpu_where_one_is_needed(tmp_path: Path) -> None:
    """Each node's sentence once; the versions are known all the same."""
    summary = run_on_two_nodes(tmp_path, device="cuda", data=Data(name="synthetic-mnist", root=str(tmp_path)))
    assert [problem.split(" finds")[0] for problem in summary["problems"]] == ["rank 0 on node0", "rank 1 on node1"]
    assert summary["data"]["missing_on"] == []
    assert summary["ranks"][1]["versions"]["torch"]


def test_a_module_that_is_missing(tmp_path: Path) -> None:
    """The user's own model must be importable in the job."""
    spec = given.job(tmp_path, given.point(1, model="no_such_module:make"))
    (summary,) = forked.values(tmp_path / "output", 1, smoke.run, spec_to_dict(spec))
    assert summary["ok"] is False
    assert any("cannot import no_such_module" in problem for problem in summary["problems"])


def test_the_library_of_the_optimizer_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before runs wait for nodes only to find it missing."""
    monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    for name, count in (("lamb", 1), ("adamw", 0)):
        spec = given.job(tmp_path / name, given.point(1, optimizer=Optimizer(name=name)))  # type: ignore[arg-type]
        (summary,) = forked.values(tmp_path / f"{name}-output", 1, smoke.run, spec_to_dict(spec))
        assert sum("cannot import pytorch_optimizer" in problem for problem in summary["problems"]) == count


def test_all_is_well(tmp_path: Path) -> None:
    """Synthetic data need no folder."""
    spec = given.job(tmp_path, given.point(2), profile={"default_node_type": "main"})
    summary = forked.values(tmp_path / "output", 2, smoke.run, spec_to_dict(spec))[0]
    assert (summary["ok"], summary["problems"], summary["node_type"]) == (True, [], "main")
    assert summary["data"] == {"root": None, "seen_by": [], "missing_on": []}


def test_a_rank_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its node may not see the study's folder: the others' findings are kept, and the silent rank is named."""
    monkeypatch.setattr(small_job, "ANSWER_WITHIN_S", 0.5)
    monkeypatch.setattr(smoke, "MEET_WITHIN", timedelta(seconds=1))
    spec = given.job(tmp_path, given.point(2))
    (summary,) = forked.values(tmp_path / "output", 1, run_without_rank_one, spec_to_dict(spec))
    assert any(problem.startswith("no answer from rank 1 in ") for problem in summary["problems"])


def run_without_rank_one(spec: dict[str, Any]) -> dict[str, Any]:
    os.environ["SUBMITIT_LOCAL_NTASKS"] = "2"
    return smoke.run(spec)
