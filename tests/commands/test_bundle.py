"""`hpcddp bundle`, and what other commands make of its file."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from hpcddp.backends.base import Submission
from hpcddp.cluster.yamlfile import read_yaml
from hpcddp.core.point import Data, Layout, Measure, Point, Workload
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import MS, Recorded, write_run, write_runs, write_study
from tests.commands.conftest import Run, refused, use
from tests.fake_slurm import FakeBackend
from tests.given_study import write_given


def test_a_study_goes_into_one_file(run: Run, tmp_path: Path) -> None:
    write_given(tmp_path / "scaling")
    result = run("bundle", "scaling")
    assert (result.exit_code, (tmp_path / "scaling.tar.gz").is_file()) == (0, True)
    assert result.stdout.startswith("scaling.tar.gz: ")
    assert "33 files (1 logs, 12 nodes, 18 records, 2 scripts)" in result.stdout
    by_rule, strange = result.stderr.splitlines()
    assert by_rule.endswith("not need (1 links, 1 submitit's pickles, 1 the snapshot of the code that ran)")
    assert strange == "! omitted: 1 file, files that hpcddp did not write: notes.txt"
    (tmp_path / "scaling" / "notes.txt").unlink()
    for name in ("a.tar.gz", "p.tar.gz"):
        assert run("bundle", "scaling", *["--pseudonymise"] * (name[0] == "p"), "-o", name).stderr.count("!") == 1
    assert run("bundle", "scaling").exit_code == 2
    assert run("bundle", "scaling", "--force").exit_code == 0


@pytest.mark.dear
def test_a_bundle_is_analyzed_as_a_study(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_given(tmp_path / "scaling")
    run("bundle", "scaling", "--pseudonymise")
    there = run("analyze", "scaling.tar.gz")
    assert there.exit_code == 3
    (report,) = (tmp_path / "cache/hpcddp/reports").glob("scaling.tar.gz-*/scaling/report.json")
    assert str(report.parent) in there.stdout
    assert run("analyze", "scaling.tar.gz", "-o", "out").exit_code == 3
    assert (tmp_path / "out/scaling/report.json").read_bytes() == report.read_bytes()


@pytest.mark.parametrize("command", ["analyze", "compare"])
def test_another_file_is_a_mistake(run: Run, tmp_path: Path, command: str) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert "notes.txt is damaged, or not from `hpcddp bundle`" in refused(
        run, command, *["notes.txt"] * (2 if command == "compare" else 1)
    )


def test_a_file_name_is_inert_in_a_remark(run: Run, tmp_path: Path) -> None:
    (write_given(tmp_path / "scaling").folder / "notes.txt").rename(tmp_path / "scaling/a\u202ecod.exe")
    stderr = run("bundle", "scaling").stderr
    assert ("\u202e" in stderr, "a\\u202ecod.exe" in stderr) == (False, True)


BUNDLE = Path(__file__).parents[1] / "analysis" / "recorded" / "version-0.1.0.tar.gz"


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """The bundle as old.tar.gz, and its study's folder."""
    shutil.copy(BUNDLE, tmp_path / "old.tar.gz")
    with tarfile.open(BUNDLE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "earlier"


def test_it_is_bundled_again_and_compares_the_same(run: Run, unpacked: Path) -> None:
    assert run("bundle", unpacked, "-o", "again.tar.gz").exit_code == 0
    result = run("compare", "old.tar.gz", "again.tar.gz")
    assert result.exit_code == 0, result.output
    assert "B trains 1.000 times as fast as A at" in result.stdout
    assert "differs   nothing that was recorded" in result.stdout


def test_its_sweep_is_written_for_today(run: Run, unpacked: Path, tmp_path: Path) -> None:
    result = run("submit", "old.tar.gz", "--cluster", "local", "--points", "--dry-run")
    assert result.exit_code == 0, result.output
    assert read_yaml(tmp_path / "earlier-local.yaml")["cluster"] == "local"
    for point in unpacked.glob("n0*"):
        assert point.name in result.stdout
    assert "6 runs to submit of 6 runs" in result.stdout


@pytest.mark.usefixtures("unpacked")
def test_a_page_can_be_made_of_it(run: Run) -> None:
    result = run("proposal", "old.tar.gz")
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    assert "weak scaling (fixed batch per GPU)" in result.stdout


def test_status_has_its_runs_as_done(run: Run, unpacked: Path) -> None:
    result = run("status", unpacked)
    assert (result.exit_code, result.stdout.splitlines()[-2]) == (0, "6 runs: 6 done"), result.output


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
    layouts = [Layout(gpus_per_node=gpus) for gpus in (1, 2)]
    points = [Point(cluster=cluster, workload=workload, layout=each, measure=measure, device="cpu") for each in layouts]
    study = write_study(folder, points, repeat=2)
    entries = [{"label": each.label, "id": each.id, "groups": ["ranks"]} for each in points]
    document = {"schema": 1, "name": folder.name, "sweep": {**SWEEP, **changes}, "repeat": 2, "points": entries}
    write_json(study.study_file, document)
    for each in points:
        write_runs(study, each, [step_ms * MS, step_ms * MS], gpu=None)
    return study


class Local(FakeBackend):
    """Each job is over as soon as it is submitted, with steps of half the time that `old` has."""

    name = "local"

    def submit(self, request: Submission) -> str:
        job = super().submit(request)
        recorded = Recorded(step_ns=50 * MS, gpu=None, job=job)
        write_run(Study(Path(request.spec.study)), request.spec.point, recorded, request.spec.run)
        return job


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Local:
    """This machine."""
    return use(monkeypatch, Local())


def bundled(run: Run, tmp_path: Path, **changes: Any) -> Study:
    """old.tar.gz, and the study in it."""
    study = measured(tmp_path / "old", **changes)
    assert run("bundle", "old").exit_code == 0
    return study


SUBMIT = ("submit", "old.tar.gz", "--cluster", "local")
IN_SLURM = ["slurm.options ['--constraint=x']", "slurm.partition gpu"]


def test_the_sweep_is_written_for_the_other_cluster(run: Run, tmp_path: Path) -> None:
    bundled(run, tmp_path)
    result = run(*SUBMIT, "--dry-run")
    assert (result.exit_code, "4 runs to submit of 4 runs" in result.stdout) == (0, True), result.output
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
    left_out = [line.rpartition(": ")[2] for line in result.stderr.splitlines() if line.startswith("! Omitted")]
    account, *keys = left_out
    assert account == "account abc"
    assert keys == [f"layout.node_type {SWEEP['layout']['node_type']}", "workload.data.root /scratch/g/abc/x", *IN_SLURM]


def test_keys_and_groups_keep_their_order(run: Run, tmp_path: Path) -> None:
    """study.json sorts its keys; what is written begins with schema and cluster, and groups come as they came."""
    groups = {"z": {"layout.gpus_per_node": [1]}, "a": {"layout.gpus_per_node": [2]}}
    study = measured(tmp_path / "old", points=groups)
    recorded = json.loads(study.study_file.read_bytes())
    for entry, group in zip(recorded["points"], groups, strict=True):
        entry["groups"] = [group]
    write_json(study.study_file, recorded)
    run("bundle", "old")
    run(*SUBMIT, "--dry-run")
    document = read_yaml(tmp_path / "old-local.yaml")
    assert list(document) == ["schema", "cluster", "workload", "layout", "points", "measure", "repeat", "device", "slurm"]
    assert list(document["points"]) == ["z", "a"]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_last_remark_compares_both(run: Run, local: Local, tmp_path: Path, elsewhere: bool) -> None:
    bundled(run, tmp_path)
    more = ("--runs", "there") if elsewhere else ()
    result = run(*SUBMIT, *more, "-y")
    assert (result.exit_code, len(local.queued)) == (0, 4), result.output
    *_, last = result.stderr.splitlines()
    shown = run(*last.partition("hpcddp ")[2].split())
    assert (shown.exit_code, "B trains 2.000 times as fast as A at 2 matched points" in shown.stdout) == (0, True), shown.output
    assert (run(*SUBMIT, *more, "-y").exit_code, len(local.queued)) == (0, 4)


def test_values_are_set_as_for_any_sweep(run: Run, local: Local, tmp_path: Path) -> None:
    bundled(run, tmp_path)
    assert run(*SUBMIT, "--set", "repeat=1", "--where", "layout.gpus_per_node == 2", "-y").exit_code == 0
    assert (len(local.queued), read_yaml(tmp_path / "old-local.yaml")["repeat"]) == (1, 2)


def test_an_edited_sweep_is_not_replaced(run: Run, local: Local, tmp_path: Path) -> None:
    bundled(run, tmp_path)
    run(*SUBMIT, "--dry-run")
    file = tmp_path / "old-local.yaml"
    file.write_text(file.read_text().replace("repeat: 2", "repeat: 1"))
    result = run(*SUBMIT, "-y")
    assert (result.exit_code, local.queued) == (2, {})
    assert "old-local.yaml exists and is not the sweep of old.tar.gz: submit it by its name" in result.stderr
    assert (run("submit", file, "-y").exit_code, len(local.queued)) == (0, 2)


def test_what_does_not_fit_is_named(run: Run, tmp_path: Path) -> None:
    bundled(run, tmp_path, points={"nodes": {"layout.nodes": [1, 999]}}, device="cuda")
    assert "999 are requested" in refused(run, "submit", "old.tar.gz", "--cluster", "rcc", "--dry-run")
    assert (tmp_path / "old-rcc.yaml").is_file()


@pytest.mark.parametrize(
    ("sweep", "arguments", "says"),
    [
        ({}, ["--cluster", "nowhere"], "no cluster `nowhere`"),
        ({}, [], "old.tar.gz: give --cluster"),
        ({"surprise": 1}, ["--cluster", "local"], "surprise"),
        ({"workload": {"script": "train.py"}}, ["--cluster", "local"], "no file `train.py`"),
    ],
)
def test_mistakes_are_named(run: Run, tmp_path: Path, sweep: dict[str, Any], arguments: list[str], says: str) -> None:
    bundled(run, tmp_path, **sweep)
    assert says in refused(run, "submit", "old.tar.gz", *arguments, "-y")


def test_a_bundle_without_a_sweep_cannot_be_run_again(run: Run, tmp_path: Path) -> None:
    measured(tmp_path / "old").study_file.unlink()
    run("bundle", "old")
    assert "contains no sweep" in refused(run, *SUBMIT)
    (tmp_path / "old.tar.gz").write_bytes(b"\x1f\x8bnothing")
    assert "old.tar.gz is damaged, or not from" in run(*SUBMIT).stderr
