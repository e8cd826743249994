"""`hpcddp reproduce`: a study's sweep comes to another cluster with what can be had there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcddp.backends.base import Submission
from hpcddp.cluster.yamlfile import read_yaml
from hpcddp.core.point import Data, Layout, Measure, Point, Workload
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.sweep.file import read_sweep
from tests.analysis.synthetic import MS, Recorded, write_run, write_runs, write_study
from tests.commands.conftest import Run
from tests.fake_backend import FakeBackend
from tests.given_plan import SWEEP as SMALL

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


def test_submitted_and_waited_for_it_says_how_far_both_agree(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine for real: two points of one run each; then what compare says, and the agreement in two lines."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    measured(tmp_path / "old")
    run("bundle", "old")
    again = ("reproduce", "old.tar.gz", "--cluster", "local", "--submit", "--set", "repeat=1", "-y")
    result = run(*again, "--wait", "--threshold", "99", "-o", "again.yaml")
    assert (result.exit_code, "2 runs: 2 done" in result.stdout) == (0, True), result.output
    assert "B  again (local, " in result.stdout
    *_, agreement, shape = result.stdout.splitlines()
    assert agreement.startswith("agreement  B trains as fast as A within 99 % at ")
    assert shape.startswith("shape      B / A lies between ")


class Local(FakeBackend):
    """Each job is over as soon as it is submitted, and made a step in so many milliseconds; None: jobs wait."""

    name = "local"

    def __init__(self, step_ms: int | None = None) -> None:
        super().__init__()
        self.step_ms = step_ms

    def submit(self, request: Submission) -> str:
        job = super().submit(request)
        if self.step_ms is not None:
            recorded = Recorded(step_ns=self.step_ms * MS, gpu=None, job=job)
            write_run(Study(Path(request.spec.study)), request.spec.point, recorded, request.spec.run)
        return job


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Local:
    """This machine; `old` is a study that made a step in 100 ms."""
    backend = Local()
    monkeypatch.setattr("hpcddp.backends.choose.make_backend", lambda *_, **__: backend)
    measured(tmp_path / "old")
    return backend


SUBMIT = ("reproduce", "old", "--cluster", "local", "--submit", "-y")


def test_given_again_when_all_is_done_it_compares(run: Run, local: Local) -> None:
    """Before that nothing is said of agreement; nothing is submitted twice."""
    waiting = run(*SUBMIT)
    assert (waiting.exit_code, len(local.queued), "agreement" in waiting.stdout) == (0, 4, False), waiting.output
    for job, request in local.queued.items():
        recorded = Recorded(step_ns=(90 if request.spec.point.ranks == 1 else 100) * MS, gpu=None, job=job)
        write_run(Study(Path(request.spec.study)), request.spec.point, recorded, request.spec.run)
    done = run(*SUBMIT)
    assert (done.exit_code, len(local.queued), "nothing to submit" in done.stdout) == (0, 4, True), done.output
    assert done.stdout.splitlines()[-2:] == [
        "agreement  B trains as fast as A within 5 % at 1 of 2 points; beyond it at 1: 1 x 1 (1.111).",
        "shape      B / A lies between 1.000 and 1.111: the scaling curves of both differ by 11.1 %.",
    ]


@pytest.mark.parametrize(("step_ms", "threshold", "code"), [(100, "5", 0), (120, "5", 4), (120, "20", 0), (80, "5", 0)])
def test_it_ends_as_compare_does(run: Run, local: Local, step_ms: int, threshold: str, code: int) -> None:
    """With 4 where a point is slower by more than the threshold."""
    local.step_ms = step_ms
    result = run(*SUBMIT, "--wait", "--threshold", threshold)
    assert (result.exit_code, "agreement  " in result.stdout) == (code, True), result.output


def test_a_sweep_that_was_edited_is_taken_as_it_is(run: Run, local: Local, tmp_path: Path) -> None:
    """It was to be looked at first; a file that `reproduce` did not write is refused, and so is --set with an edited one."""
    run("reproduce", "old", "--cluster", "local")
    file = tmp_path / "old-local.yaml"
    file.write_text(file.read_text().replace("repeat: 2", "repeat: 1"))
    assert run(*SUBMIT, "--set", "repeat=3").exit_code == 2
    result = run(*SUBMIT)
    assert (result.exit_code, len(local.queued)) == (0, 2), result.output
    assert "! old-local.yaml was changed since it was written, and is taken as it is" in result.stderr
    file.write_text(SMALL)
    assert (run(*SUBMIT).exit_code, len(local.queued)) == (2, 2)


@pytest.mark.parametrize("option", ["--wait", "-y", "--smoke", "-J=--hold"])
def test_options_of_submission_go_with_submit(run: Run, local: Local, tmp_path: Path, option: str) -> None:
    """Without --submit nothing is written either; --runs alone says where the runs will be."""
    result = run("reproduce", "old", "--cluster", "local", option)
    assert (result.exit_code, local.queued, list(tmp_path.glob("*.yaml"))) == (2, {}, []), result.output
    assert "hpcddp compare old elsewhere/old-local" in run("reproduce", "old", "--cluster", "local", "--runs", "elsewhere").stdout
