"""The smoke test: what it sees of a good and of a bad set of nodes, and what it imports of a script."""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hpcddp.core.jobspec import ScriptPlace, spec_to_dict
from hpcddp.core.point import Data, Layout, Measure, Optimizer, Point, Workload
from hpcddp.worker import small_job, smoke
from hpcddp.worker.smoke import Imported, sure_imports
from tests.worker import forked, given


def smoked(
    study: Path, what: Point, function: Any = smoke.smoke_rank, *arguments: Any, world: int = 0, **about: Any
) -> dict[str, Any]:
    spec = spec_to_dict(given.job(study, what, **about))
    nodes = 1 if world else what.layout.nodes
    found = forked.values(study / "output", world or what.ranks, function, spec, *arguments, nodes=nodes)
    summary: dict[str, Any] = json.loads((study / ".jobs" / "7.smoke" / "smoke.json").read_text())
    assert summary == found[0]
    return summary


def on_two_nodes(study: Path, **changes: Any) -> dict[str, Any]:
    """One rank on each; DATA is a folder on the first only."""
    return smoked(study, given.point(2, nodes=2, **changes), with_data_on_one, study, data_root="$DATA/mnist")


def with_data_on_one(spec: dict[str, Any], study: Path) -> dict[str, Any]:
    (study / "node0" / "mnist").mkdir(parents=True, exist_ok=True)
    os.environ["DATA"] = str(study / os.environ["SLURMD_NODENAME"])
    return smoke.smoke_rank(spec)


def test_a_folder_that_one_node_does_not_see(tmp_path: Path) -> None:
    summary = on_two_nodes(tmp_path)
    assert (summary["ok"], summary["data"]["seen_by"], summary["data"]["missing_on"]) == (False, ["node0"], ["node1"])
    (problem,) = summary["problems"]
    assert problem.startswith("the data folder $DATA/mnist is missing")
    assert problem.endswith("on node1")
    assert [found["summed"] for found in summary["ranks"]] == [2, 2]
    assert summary["ranks"][1]["versions"]["torch"]


def test_a_folder_without_its_data(tmp_path: Path) -> None:
    """Said once, with what to do, as is a set that is there and not what its manifest says; not where batches are synthetic."""
    (tmp_path / "data").mkdir()
    data = Data(name="bigmnist", root=str(tmp_path / "data"))
    (problem,) = on_two_nodes(tmp_path, data=data)["problems"]
    assert problem.startswith(f"no data `bigmnist` in {tmp_path / 'data'}: `hpcddp data prepare bigmnist --root")
    assert on_two_nodes(tmp_path / "synthetic", data=data, measure={"input": "synthetic"})["problems"] == []
    (tmp_path / "data" / "bigmnist.json").write_text("{}")
    (problem,) = on_two_nodes(tmp_path / "again", data=data)["problems"]
    assert str(tmp_path / "data" / "bigmnist.json") in problem


def test_no_gpu_where_one_is_needed(tmp_path: Path) -> None:
    summary = on_two_nodes(tmp_path, device="cuda", data=Data(name="synthetic-mnist", root=str(tmp_path)))
    assert [problem.split(" finds")[0] for problem in summary["problems"]] == ["rank 0 on node0", "rank 1 on node1"]
    assert summary["data"]["missing_on"] == []
    assert summary["ranks"][1]["versions"]["torch"]


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"model": "no_such_module:make"}, "no_such_module"),
        ({"optimizer": Optimizer(name="lamb")}, "pytorch_optimizer"),
        ({"optimizer": Optimizer(name="adamw")}, None),
    ],
)
def test_a_module_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], missing: str | None
) -> None:
    monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    summary = smoked(tmp_path, given.point(1, **changes))
    assert summary["ok"] is (missing is None)
    assert [f"cannot import {missing}" in problem for problem in summary["problems"]] == [True] * (missing is not None)


def test_all_is_well(tmp_path: Path) -> None:
    summary = smoked(tmp_path, given.point(2), profile={"default_node_type": "main"})
    assert (summary["ok"], summary["problems"], summary["node_type"]) == (True, [], "main")
    assert summary["data"] == {"root": None, "seen_by": [], "missing_on": []}


def test_a_rank_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its node may not see the study's folder."""
    monkeypatch.setattr(small_job, "ANSWER_WITHIN_S", 0.5)
    monkeypatch.setattr(small_job, "MEET_WITHIN", timedelta(seconds=1))
    summary = smoked(tmp_path, given.point(2), without_rank_one, world=1)
    assert any(problem.startswith("no answer from rank 1 in ") for problem in summary["problems"])


def without_rank_one(spec: dict[str, Any]) -> dict[str, Any]:
    os.environ["SUBMITIT_LOCAL_NTASKS"] = "2"
    return smoke.smoke_rank(spec)


GUARDED = """\
import os.path, torch
from collections import abc
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import no_such_types
try:
    import no_such_speedup
except ImportError:
    no_such_speedup = None
def main():
    import no_such_logger
with open(__file__) as file:
    import json
if __name__ == "__main__":
    import math
"""


def smoke_of(folder: Path, text: str, **modules: str) -> dict[str, Any]:
    """smoke.json of train.py on two ranks, with modules beside it."""
    for name, content in {"train": text, **modules}.items():
        (folder / f"{name}.py").write_text(content)
    point = Point(
        cluster="local",
        workload=Workload(script="train.py", args={"depth": 3}),
        layout=Layout(nodes=1, gpus_per_node=2),
        measure=Measure(telemetry_hz=0.0),
        device="cpu",
    )
    return smoked(folder / "study", point, script=ScriptPlace(file=str(folder / "train.py"), folder=str(folder)))


def test_what_is_sure_to_be_imported(tmp_path: Path) -> None:
    """Nothing within a function, a condition or a try, which may well not be needed."""
    (tmp_path / "train.py").write_text(GUARDED)
    found = [(each.line, each.module, each.name) for each in sure_imports(tmp_path / "train.py")]
    assert found == [
        (1, "os.path", None),
        (1, "torch", None),
        (2, "collections", "abc"),
        (3, "typing", "TYPE_CHECKING"),
        (13, "json", None),
        (15, "math", None),
    ]
    assert Imported(1, "torch") in sure_imports(tmp_path / "train.py")


def test_what_a_run_may_go_without_is_not_sure(tmp_path: Path) -> None:
    """Where errors are suppressed, and behind a line that changes where modules are found."""
    suppressed = "with contextlib.suppress(ImportError):\n    import no_such_speedup\n"
    moved = "sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'src'))\n"
    nested = "if os.path.isdir('src'):\n    sys.path.append('src')\n"
    for moves in (moved, nested):
        text = f"import contextlib, os, sys\n{suppressed}import json\n{moves}import no_such_model\n"
        (tmp_path / "train.py").write_text(text)
        assert [each.module for each in sure_imports(tmp_path / "train.py")] == ["contextlib", "os", "sys", "json"]


def test_the_missing_module_is_named(tmp_path: Path) -> None:
    text = "import torch\nimport no_such_library.part\nfrom model import make\nfrom model import build\n"
    summary = smoke_of(tmp_path, text, model="import no_such_either\n")
    (host,) = {found["host"] for found in summary["ranks"]}
    missing = "ModuleNotFoundError: No module named"
    advice = "install it in the compute environment, or put it beside the script"
    assert summary["problems"] == [
        f"{host}: train.py, line 2, imports no_such_library.part: {missing} 'no_such_library': {advice}",
        f"{host}: train.py, line 3, imports model: {missing} 'no_such_either': {advice}",
    ]


def test_a_name_that_a_module_does_not_have(tmp_path: Path) -> None:
    (problem,) = smoke_of(tmp_path, "from torch.nn import Linear, NoSuchLayer\n")["problems"]
    assert "train.py, line 1, imports torch.nn: ImportError: cannot import name 'NoSuchLayer' from 'torch.nn'" in problem


def test_the_main_part_does_not_run(tmp_path: Path) -> None:
    text = "import setup_of_ranks\nraise RuntimeError('the training')\n"
    words = "import os, sys\nassert sys.argv[1:] == ['--depth', '3']\n"
    rank = "assert int(os.environ['RANK']) < int(os.environ['WORLD_SIZE'])\n"
    summary = smoke_of(tmp_path, text, setup_of_ranks=words + rank)
    assert (summary["ok"], summary["problems"]) == (True, [])
