"""`hpcddp reproduce`: a study's sweep comes to another cluster with what can be had there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcddp.cluster.yamlfile import read_yaml
from hpcddp.core.point import Data, Layout, Measure, Point, Workload
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.sweep.file import read_sweep
from tests.analysis.synthetic import MS, write_runs, write_study
from tests.commands.conftest import Run

SWEEP: dict[str, Any] = {
    "schema": 1,
    "cluster": "rcc",
    "workload": {"model": "mnist-cnn", "data": {"name": "synthetic-mnist", "root": "/scratch/g/abc/x"}, "batch_per_gpu": 64},
    "layout": {"node_type": "v100"},
    "points": {"ranks": {"layout.gpus_per_node": [1, 2]}},
    "measure": {"warmup_steps": 1, "steps": 5},
    "repeat": 2,
    "device": "cpu",
    "account": "abc",
    "slurm": {"walltime_min": 7, "partition": "gpu", "options": ["--constraint=x"]},
}


def measured(folder: Path, cluster: str = "rcc", step_ms: int = 100, **changes: Any) -> Study:
    """Two points of that sweep with two runs each."""
    workload = Workload(model="mnist-cnn", data=Data(name="synthetic-mnist"), batch_per_gpu=64)
    measure = Measure(warmup_steps=1, steps=5)
    points = [
        Point(cluster=cluster, workload=workload, layout=Layout(gpus_per_node=gpus), measure=measure, device="cpu")
        for gpus in (1, 2)
    ]
    study = write_study(folder, points, repeat=2)
    entries = [{"label": each.label, "id": each.id, "groups": ["ranks"]} for each in points]
    write_json(
        study.study_file, {"schema": 1, "name": folder.name, "sweep": {**SWEEP, **changes}, "repeat": 2, "points": entries}
    )
    for each in points:
        write_runs(study, each, [step_ms * MS, step_ms * MS], gpu=None)
    return study


def test_the_sweep_is_written_for_the_other_cluster(run: Run, tmp_path: Path) -> None:
    """Workload, points and measurement stay; account, data's folder, node type and Slurm's options go, and are said."""
    measured(tmp_path / "old")
    run("bundle", "old")
    result = run("reproduce", "old.tar.gz", "--cluster", "local")
    assert result.exit_code == 0, result.stderr
    document = read_yaml(tmp_path / "old-local.yaml")
    assert document == {
        "schema": 1,
        "cluster": "local",
        "workload": {"model": "mnist-cnn", "data": {"name": "synthetic-mnist"}, "batch_per_gpu": 64},
        "layout": {},
        "points": {"ranks": {"layout.gpus_per_node": [1, 2]}},
        "measure": {"warmup_steps": 1, "steps": 5},
        "repeat": 2,
        "device": "cpu",
        "slurm": {"walltime_min": 7},
    }
    assert [line.rpartition(": ")[2] for line in result.stderr.splitlines()] == [
        "account abc",
        "layout.node_type v100",
        "workload.data.root /scratch/g/abc/x",
        "slurm.options ['--constraint=x']",
        "slurm.partition gpu",
    ]


def test_keys_and_groups_keep_their_order(run: Run, tmp_path: Path) -> None:
    """study.json sorts its keys; what is written to be edited begins with schema and cluster, and groups come as they came."""
    groups = {"z": {"layout.gpus_per_node": [1]}, "a": {"layout.gpus_per_node": [2]}}
    study = measured(tmp_path / "old", points=groups)
    recorded = json.loads(study.study_file.read_bytes())
    for entry, group in zip(recorded["points"], groups, strict=True):
        entry["groups"] = [group]
    write_json(study.study_file, recorded)
    run("reproduce", "old", "--cluster", "local")
    document = read_yaml(tmp_path / "old-local.yaml")
    assert list(document) == ["schema", "cluster", "workload", "layout", "points", "measure", "repeat", "device", "slurm"]
    assert (list(document["workload"]), list(document["points"])) == (["model", "data", "batch_per_gpu"], ["z", "a"])


def test_the_last_line_compares_both(run: Run, tmp_path: Path) -> None:
    """Once the sweep has run there, the command printed compares old and new, point by point."""
    measured(tmp_path / "old")
    *_, last = run("reproduce", "old", "--cluster", "local").stdout.splitlines()
    measured(tmp_path / "old-local", cluster="local", step_ms=50)
    result = run(*last.split()[1:])
    assert (result.exit_code, "B trains 2.000 times as fast as A at 2 matched points" in result.stdout) == (0, True)


def test_what_does_not_fit_is_named(run: Run, tmp_path: Path) -> None:
    """The file is there to be edited; exit code 2 with the cluster's limit."""
    measured(tmp_path / "old", points={"nodes": {"layout.nodes": [1, 999]}}, device="cuda")
    result = run("reproduce", "old", "--cluster", "rcc")
    assert (result.exit_code, "999 asked for" in result.stderr) == (2, True)
    assert "old-rcc.yaml does not fit rcc as it is: edit it" in result.stderr
    assert (tmp_path / "old-rcc.yaml").is_file()


def test_values_may_be_set_on_the_way(run: Run, tmp_path: Path) -> None:
    """As for submit."""
    measured(tmp_path / "old")
    assert run("reproduce", "old", "--cluster", "local", "--set", "repeat=6", "-o", "new.yaml").exit_code == 0
    assert read_sweep(tmp_path / "new.yaml").sweep.repeat == 6


@pytest.mark.parametrize(
    ("sweep", "arguments", "says"),
    [
        ({}, ["--cluster", "nowhere"], "no cluster `nowhere`"),
        ({"surprise": 1}, ["--cluster", "local"], "surprise"),
        ({}, ["--cluster", "local", "-o", "old/study.json"], "is already there"),
    ],
)
def test_mistakes_are_named(run: Run, tmp_path: Path, sweep: dict[str, Any], arguments: list[str], says: str) -> None:
    """Exit code 2, and no file."""
    measured(tmp_path / "old", **sweep)
    result = run("reproduce", "old", *arguments)
    assert (result.exit_code, says in result.stderr, list(tmp_path.glob("*.yaml"))) == (2, True, [])


def test_a_study_without_a_sweep_cannot_be_run_again(run: Run, tmp_path: Path) -> None:
    """Jobs submitted by hand left none."""
    study = measured(tmp_path / "old")
    study.study_file.unlink()
    result = run("reproduce", "old", "--cluster", "local")
    assert (result.exit_code, "holds no sweep" in result.stderr) == (2, True)
