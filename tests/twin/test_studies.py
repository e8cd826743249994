"""Studies from sweep to figures on a real Slurm, by the commands of the README, on CPUs and cut short by --set."""

from __future__ import annotations

import csv
import dataclasses
import shlex
import shutil
from pathlib import Path

import pytest

from hpcddp.analysis import analyze
from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.jobspec import JobSpec
from hpcddp.script import job_request as requests
from hpcddp.script.render import launch_by_hand, render
from hpcddp.script.resources import job_request
from hpcddp.sweep.expand import resolve
from hpcddp.sweep.file import make_sweep
from tests.twin.twin import Twin, Twins
from tests.twin.userland import User, read

JOBS = Path(__file__).parent.parent.parent / "jobs"

CUT = [
    *("--set", "device=cpu", "--set", "repeat=1", "--set", "workload.data.copies=2", "--set", "workload.batch_per_gpu=32"),
    *("--set", "measure.steps=12", "--set", "measure.warmup_steps=3", "--set", "workload.loader_workers_per_rank=0"),
    *("--set", "layout.physical_cores_per_rank=1", "--set", "slurm.walltime_min=10", "--set", "measure.evaluate=true"),
    *("--group", "nodes", "--group", "nodes-1-gpu", "--where", "layout.nodes <= 2 and ranks <= 4"),
]

SHAPES = {(1, 1), (1, 4), (2, 1)}


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
    assert "submitted    3 jobs" in said.stdout
    user.twin.wait_jobs(300)
    return user


def test_from_sweep_to_figures(finished: User, arguments: list[str]) -> None:
    assert finished.failures() == {}
    jobs = {job["JobName"]: job["NodeList"] for job in finished.jobs()}
    assert len(jobs) == 4
    assert all(name == "smoke" or name.endswith(".r1") for name in jobs)
    assert all(nodes.startswith(("gn0", "gn[0")) and "gn07" not in nodes for nodes in jobs.values())
    (study,) = finished.json("status", ".")["studies"]
    assert {run["phase"] for run in study["runs"]} == {"done"}
    assert "nothing to submit" in finished.hpcddp("submit", *arguments, "-y").stdout
    assert "gates     3 of 3 runs pass" in finished.hpcddp("analyze", ".").stdout
    report = finished.home / "rcc-bigmnist" / "report"
    rows = list(csv.DictReader((report / "scaling.csv").read_text(encoding="utf-8").splitlines()))
    assert {(int(row["nodes"]), int(row["gpus_per_node"])) for row in rows} == SHAPES
    for figure in ("scaling", "efficiency", "breakdown"):
        assert (report / "figures" / f"{figure}.svg").stat().st_size > 1000
        assert (report / "figures" / f"{figure}.png").stat().st_size > 1000


def test_the_plan_foretold_files_and_bytes(finished: User, arguments: list[str]) -> None:
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


TWO = [
    *("--set", "device=cpu", "--set", "measure.steps=5", "--set", "measure.warmup_steps=2", "--set", "account=proj"),
    *("--set", "repeat=1", "--set", "workload.data.name=synthetic-mnist", "--set", "workload.loader_workers_per_rank=0"),
    *("--set", "workload.batch_per_gpu=8", "--set", "layout.physical_cores_per_rank=1", "--set", "layout.gpus_per_node=2"),
    *("--group", "nodes", "--where", "layout.nodes == 2"),
]


def of_torchrun(attempt: Path) -> None:
    """The records of direct launching, the ranks in the order of their nodes."""
    launch, end = (read(attempt / name) for name in ("launch.json", "end.json"))
    first, second = launch["hosts"]
    assert (launch["launcher"], launch["ranks_per_node"], first < second) == ("torchrun", 2, True)
    assert [rank["host"] for rank in end["ranks"]] == [first, first, second, second]
    assert (end["state"], [gate["name"] for gate in end["gates"] if not gate["passed"]]) == ("done", [])


def test_torchrun(user: User) -> None:
    user.hpcddp("submit", "rcc-bigmnist.yaml", *TWO, "--set", "layout.launcher=torchrun", "--runs", "torchrun", "-y")
    user.twin.wait_jobs(200)
    assert "1 run: 1 done" in user.hpcddp("status", "torchrun").stdout
    (attempt,) = (user.home / "torchrun").glob("*/*/r1/*.0")
    of_torchrun(attempt)
    logs = (user.home / "torchrun" / "rcc-bigmnist" / ".jobs" / attempt.name.partition(".")[0]).glob("*_log.out")
    assert sorted(log.name.split("_")[1] for log in logs) == ["0", "1", "2", "3"]


@pytest.mark.soak
@pytest.mark.parametrize("launcher", ["direct", "torchrun"])
def test_a_script_submitted_by_hand(user: User, launcher: str) -> None:
    """`sbatch` of what `render` printed leaves the same records, under adhoc/ of the run root."""
    folder = user.home / f"by hand {launcher}"
    folder.mkdir()
    script = user.hpcddp("render", "rcc-bigmnist.yaml", *TWO, "--set", f"layout.launcher={launcher}").stdout
    job = user.twin.run(["sbatch", "--parsable"], text=script, cwd=folder).stdout.strip()
    user.twin.wait_jobs(200)
    (attempt,) = (folder / "jobs" / "adhoc").glob(f"*/r1/{job}.0")
    if launcher == "torchrun":
        of_torchrun(attempt)
    assert {row["JobID"]: row["State"] for row in user.twin.sacct()}[job] == "COMPLETED"
    assert "gates     1 of 1 runs pass" in user.hpcddp("analyze", folder / "jobs" / "adhoc").stdout


def test_slurm_refuses(user: User) -> None:
    """What only Slurm knows to refuse ends with exit code 5 and its own words; the run can be submitted later."""
    sweep = ["rcc-bigmnist.yaml", *CUT, "--where", "layout.nodes == 2 and layout.gpus_per_node == 1", "--runs", "refused"]
    refused = user.hpcddp("submit", *sweep, "-J", "--reservation=nosuch", "-y", exit_code=5)
    assert "reservation" in refused.stderr.lower()
    assert "refused" in user.hpcddp("status", "refused", exit_code=3).stdout


NODE = Path(__file__).with_name("forked_node.py")

SIXTY_FOUR = {
    "schema": 1,
    "cluster": "marconi100",
    "device": "cpu",
    "workload": {"model": "mnist-cnn", "data": {"name": "synthetic-mnist"}, "batch_per_gpu": 8, "loader_workers_per_rank": 0},
    "layout": {"nodes": 16, "gpus_per_node": 4, "physical_cores_per_rank": 1},
    "measure": {"warmup_steps": 2, "steps": 10},
}


@pytest.mark.soak
def test_sixty_four_ranks(twins: Twins, tmp_path: Path) -> None:
    twin = twins.get("marconi100")
    profile = load_profile("marconi100")
    sweep = make_sweep(SIXTY_FOUR, ["slurm.walltime_min=20"], Path("soak")).sweep
    point = resolve(sweep, profile)
    request = job_request(profile, point, sweep.slurm, requests.User(account="proj"))
    launch = launch_by_hand(profile, JobSpec(point=point, study="$HPCDDP_RUNS/adhoc"), str(tmp_path))
    forked = dataclasses.replace(launch, command=f"python3 -u {shlex.quote(str(NODE))} 4")
    script = render(profile, point, dataclasses.replace(request, ranks_per_node=1, cpus_per_rank=16), forked)
    sbatch = ["sbatch", "--parsable", f"--output={tmp_path}/log"]
    job = twin.run(sbatch, text=script, cwd=tmp_path).stdout.strip()
    twin.wait_jobs(600)
    assert {row["JobID"]: row["State"] for row in twin.sacct()}[job] == "COMPLETED", (tmp_path / "log").read_text()
    (result,) = analyze(tmp_path)
    assert "64" in result.text
    assert not result.missing
