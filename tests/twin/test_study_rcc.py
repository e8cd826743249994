"""The rcc study from sweep to figures on a real Slurm: the commands of the README, on CPUs, cut short by --set."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from tests.twin.twin import Twin
from tests.twin.userland import User

JOBS = Path(__file__).parent.parent.parent / "jobs"

CUT = [
    *("--set", "device=cpu", "--set", "repeat=1", "--set", "workload.data.copies=2", "--set", "workload.batch_per_gpu=32"),
    *("--set", "measure.steps=12", "--set", "measure.warmup_steps=3", "--set", "workload.loader_workers_per_rank=0"),
    *("--set", "layout.physical_cores_per_rank=1", "--set", "slurm.walltime_min=10", "--set", "measure.evaluate=true"),
    *("--group", "nodes", "--group", "nodes-1-gpu", "--where", "layout.nodes in [1, 2, 4] and ranks <= 8"),
]

SHAPES = {(1, 1), (1, 4), (2, 1), (2, 4), (4, 1)}


@pytest.fixture(scope="module")
def user(rcc_twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> User:
    """Has prepared a small bigMNIST and copied the sweep, in a folder whose name no shell may take apart."""
    home = tmp_path_factory.mktemp("user") / 'it\'s $(touch here) "mine"'
    home.mkdir()
    user = User(rcc_twin, home)
    shutil.copy(JOBS / "rcc-bigmnist.yaml", user.home)
    user.hpcddp("data", "prepare", "bigmnist", "--root", "bigmnist", "--copies", 2, "--digits", "sklearn")
    return user


@pytest.fixture(scope="module")
def arguments(user: User) -> list[str]:
    """The sweep, cut short, on this data."""
    data = ("--set", f"workload.data.root={user.home}/bigmnist")
    return ["rcc-bigmnist.yaml", *CUT, *data]


@pytest.fixture(scope="module")
def finished(user: User, arguments: list[str]) -> User:
    """The study, submitted after a smoke test and run to its end."""
    said = user.hpcddp("submit", *arguments, "--smoke", "-y")
    assert "data visible on 2 of 2 nodes" in said.stdout
    assert "submitted    5 jobs" in said.stdout
    user.twin.wait_jobs(300)
    return user


def test_every_job_completed(finished: User) -> None:
    """sacct shows every job COMPLETED, under names that say point and run, on the node type asked for."""
    assert finished.failures() == {}
    jobs = {job["JobName"]: job["NodeList"] for job in finished.jobs()}
    assert len(jobs) == 6
    assert all(name == "smoke" or name.endswith(".r1") for name in jobs)
    assert all(nodes.startswith(("gn0", "gn[0")) and "gn07" not in nodes for nodes in jobs.values())


def test_status_and_a_second_submit(finished: User, arguments: list[str]) -> None:
    """All runs are done, and nothing is left to submit."""
    (study,) = finished.json("status", ".")["studies"]
    assert {run["phase"] for run in study["runs"]} == {"done"}
    assert "nothing to submit" in finished.hpcddp("submit", *arguments, "-y").stdout


def test_analysis(finished: User) -> None:
    """One table, CSV and figures of every shape, both baselines named; every run passed its gates."""
    text = finished.hpcddp("analyze", ".").stdout
    assert "gates     5 of 5 runs pass" in text
    report = finished.home / "rcc-bigmnist" / "report"
    rows = list(csv.DictReader((report / "scaling.csv").read_text(encoding="utf-8").splitlines()))
    assert {(int(row["nodes"]), int(row["gpus_per_node"])) for row in rows} == SHAPES
    for figure in ("scaling", "efficiency", "breakdown"):
        assert (report / "figures" / f"{figure}.svg").stat().st_size > 1000
        assert (report / "figures" / f"{figure}.png").stat().st_size > 1000


def test_the_plan_foretold_files_and_bytes(finished: User, arguments: list[str]) -> None:
    """What the study left is at most what `plan` said, and at least three quarters of it."""
    study = finished.home / "rcc-bigmnist"
    smoke = next(job["JobID"] for job in finished.jobs() if job["JobName"] == "smoke")
    outside = {".analysis", ".code", "report", "study.json", "submissions.jsonl", "lock", smoke, f"{smoke}.smoke"}
    files = (path for path in study.rglob("*") if not path.is_dir() or path.is_symlink())
    left = [path for path in files if not outside.intersection(path.relative_to(study).parts) and "smoke." not in str(path)]
    planned = finished.json("plan", *arguments)["totals"]
    assert 0.75 * planned["files"] <= len(left) <= planned["files"], sorted(str(path.relative_to(study)) for path in left)
    unwatched = finished.json("plan", *arguments, "--set", "measure.telemetry_hz=0")["totals"]
    readings = sum(path.stat().st_size for path in left if path.name.endswith(".node.csv"))
    records = sum(path.lstat().st_size for path in left) - readings
    assert 0.75 * unwatched["bytes"] <= records <= unwatched["bytes"]
    assert 0 < readings <= planned["bytes"] - unwatched["bytes"]  # planned as if runs took all of their wall time


def test_a_moved_run_root_analyzes_to_the_same_bytes(finished: User, tmp_path: Path) -> None:
    """The study copied elsewhere gives the same report, file by file."""
    moved = tmp_path / "elsewhere" / "rcc-bigmnist"
    shutil.copytree(finished.home / "rcc-bigmnist", moved, symlinks=True, ignore=shutil.ignore_patterns("report"))
    reports = []
    for folder in (finished.home / "rcc-bigmnist", moved):
        finished.hpcddp("analyze", folder)
        files = (file for file in sorted((folder / "report").rglob("*")) if file.is_file())
        reports.append({file.relative_to(folder): file.read_bytes() for file in files})
    assert reports[0] == reports[1]


def test_torchrun(user: User) -> None:
    """Two nodes of two ranks by torchrun: the records of direct launching, submitted and by hand; a log of each rank."""
    small = ("--set", "layout.launcher=torchrun", "--set", "device=cpu", "--set", "measure.steps=5", "--set", "account=proj")
    one = ("--group", "nodes", "--where", "layout.nodes == 2", "--set", "layout.gpus_per_node=2", "--set", "repeat=1")
    data = ("--set", "workload.data.name=synthetic-mnist", "--set", "workload.loader_workers_per_rank=0")
    less = ("--set", "workload.batch_per_gpu=8", "--set", "measure.warmup_steps=2", "--set", "layout.physical_cores_per_rank=1")
    arguments = ["rcc-bigmnist.yaml", *small, *one, *data, *less]
    user.hpcddp("submit", *arguments, "--runs", "torchrun", "-y")
    (user.home / "by hand").mkdir()
    script = user.hpcddp("render", *arguments).stdout
    job = user.twin.run(["sbatch", "--parsable"], text=script, cwd=user.home / "by hand").stdout.strip()
    user.twin.wait_jobs(200)
    assert "1 run: 1 done" in user.hpcddp("status", "torchrun").stdout
    (attempt,) = (user.home / "torchrun").glob("*/*/r1/*.0")
    (by_hand,) = (user.home / "by hand" / "jobs" / "adhoc").glob(f"*/r1/{job}.0")
    for folder in (attempt, by_hand):
        launch, end = (json.loads((folder / name).read_text()) for name in ("launch.json", "end.json"))
        first, second = launch["hosts"]
        assert (launch["launcher"], launch["ranks_per_node"], first < second) == ("torchrun", 2, True)
        assert [rank["host"] for rank in end["ranks"]] == [first, first, second, second]
        assert end["state"] == "done"
        assert all(gate["passed"] for gate in end["gates"])
    logs = (user.home / "torchrun" / "rcc-bigmnist" / ".jobs" / attempt.name.partition(".")[0]).glob("*_log.out")
    assert sorted(log.name.split("_")[1] for log in logs) == ["0", "1", "2", "3"]


@pytest.mark.soak
def test_a_failed_run_is_told_and_submitted_again(user: User) -> None:
    """Missing data fails the run with a sentence that names the folder; submitting again repeats just that run."""
    sweep = ["rcc-bigmnist.yaml", *CUT, "--where", "layout.nodes == 1 and layout.gpus_per_node == 1", "--runs", "elsewhere"]
    user.hpcddp("submit", *sweep, "--set", "workload.data.root=/nowhere", "-y")
    user.twin.wait_jobs(120)
    status = user.hpcddp("status", "elsewhere", exit_code=3).stdout
    assert "failed" in status
    assert "/nowhere" in status
    again = user.hpcddp("submit", *sweep, "--set", f"workload.data.root={user.home}/bigmnist", "-y")
    assert "submitted    1 job " in again.stdout
    user.twin.wait_jobs(120)
    assert "1 run: 1 done" in user.hpcddp("status", "elsewhere").stdout


@pytest.mark.soak
def test_a_script_submitted_by_hand(user: User) -> None:
    """`sbatch` of what `render` printed leaves the same records, under adhoc/ of the run root."""
    options = ("--set", "device=cpu", "--set", "measure.steps=5", "--set", "measure.warmup_steps=2", "--set", "account=proj")
    small = ("--workload", "mnist-cnn/synthetic-mnist", "--set", "workload.loader_workers_per_rank=0")
    done = user.hpcddp("render", "--cluster", "rcc", "--nodes", 2, "--gpus-per-node", 1, *options, *small)
    sbatch = ["sbatch", "--parsable", f"--output={user.home}/by-hand.log"]
    job = user.twin.run(sbatch, text=done.stdout, cwd=user.home).stdout.strip()
    user.twin.wait_jobs(120)
    log = (user.home / "by-hand.log").read_text()
    assert {row["JobID"]: row["State"] for row in user.twin.sacct()}[job] == "COMPLETED", log
    assert "gates     1 of 1 runs pass" in user.hpcddp("analyze", "jobs/adhoc").stdout, log


def test_slurm_refuses(user: User) -> None:
    """What only Slurm knows to refuse ends with exit code 5 and its own words; the run can be submitted later."""
    sweep = ["rcc-bigmnist.yaml", *CUT, "--where", "layout.nodes == 2 and layout.gpus_per_node == 1", "--runs", "refused"]
    refused = user.hpcddp("submit", *sweep, "-J", "--reservation=nosuch", "-y", exit_code=5)
    assert "reservation" in refused.stderr.lower()
    assert "refused" in user.hpcddp("status", "refused", exit_code=3).stdout


def test_an_account_of_someone_else_is_refused_before_slurm(user: User) -> None:
    """A wrong account is named with those there are, and no job is submitted."""
    before = len(user.twin.sacct())
    said = user.hpcddp("submit", "rcc-bigmnist.yaml", *CUT, "--set", "account=other", "--runs", "x", "-y", exit_code=2)
    assert "account `other` is not yours to charge; Slurm lists proj" in said.stderr
    assert len(user.twin.sacct()) == before
