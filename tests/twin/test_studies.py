"""Studies from sweep to figures on a real Slurm, by the commands of the README, on CPUs and cut short by --set.

And jobs that measure nodes: preflight, `clusters survey`, `bench comm`. Nodes of the twin share two cores.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import shlex
import shutil
from pathlib import Path

import pytest

from hpcddp.analysis import analyze
from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.yamlfile import parse_yaml
from hpcddp.core.job_ids import slurm_id
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.preflight import PreflightRecord
from hpcddp.core.run_root import Study
from hpcddp.script import job_request as requests
from hpcddp.script.render import launch_by_hand, render
from hpcddp.script.resources import job_request
from hpcddp.study.study_status import preflights_of
from hpcddp.sweep.expand import resolve
from hpcddp.sweep.file import make_sweep
from tests.twin.twin import Twin, Twins
from tests.twin.userland import SMALL, User, read, without_torch

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


def test_more_nodes_are_predicted_from_one(rcc_twin: Twin, arguments: list[str], tmp_path: Path) -> None:
    """One node is measured; plan has the block of two, and submit writes it down before their job begins."""
    user, ahead = User(rcc_twin, tmp_path), [*arguments, "--where", "layout.gpus_per_node == 1"]
    shutil.copy(JOBS / "rcc-bigmnist.yaml", user.home)
    user.hpcddp("submit", *ahead, "--where", "layout.nodes == 1", "-y")
    user.twin.wait_jobs(300)
    assert "expected, from n01-g1-b32-" in user.hpcddp("plan", *ahead).stdout
    [expected] = user.json("plan", *ahead)["expected"]
    user.hpcddp("submit", *ahead, "-y")
    recorded = {point["label"]: point for point in read(user.home / "rcc-bigmnist" / "prediction.json")["points"]}
    assert recorded[expected["label"]]["samples_per_s"] == pytest.approx(expected["samples_per_s"])
    user.twin.wait_jobs(300)
    [launch] = map(read, (user.home / "rcc-bigmnist").glob("n02-*/r1/*/launch.json"))
    assert recorded[expected["label"]]["made_unix_s"] <= launch["launched_unix_ns"] / 1e9


def test_from_sweep_to_figures(finished: User, arguments: list[str]) -> None:
    assert finished.failures() == {}
    jobs = {job["JobName"]: job["NodeList"] for job in finished.jobs()}
    assert len(jobs) == 4
    assert all(name == "smoke" or name.endswith(".r1") for name in jobs)
    assert all(nodes.startswith(("gn0", "gn[0")) and "gn07" not in nodes for nodes in jobs.values())
    (study,) = finished.json("status", ".")["studies"]
    assert {run["phase"] for run in study["runs"]} == {"done"}
    assert "nothing to submit" in finished.hpcddp("submit", *arguments, "-y").stdout
    assert "3 of 3 runs pass" in finished.hpcddp("analyze", ".").stdout
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
    assert "1 of 1 runs pass" in user.hpcddp("analyze", folder / "jobs" / "adhoc").stdout


@pytest.mark.soak
def test_a_script_that_was_edited(user: User) -> None:
    """Its spec says what is trained, under an id of its own; ranks that the header does not start end it with a sentence."""
    folder = user.home / "edited"
    folder.mkdir()
    script = user.hpcddp("render", "rcc-bigmnist.yaml", *TWO).stdout
    edits = [('"batch_per_gpu": 8', '"batch_per_gpu": 4'), ("#SBATCH --nodes=2", "#SBATCH --nodes=1")]
    sbatch = ["sbatch", "--parsable"]
    other, smaller = (user.twin.run(sbatch, text=script.replace(*edit), cwd=folder).stdout.strip() for edit in edits)
    user.twin.wait_jobs(200)
    (attempt,) = (folder / "jobs" / "adhoc").glob(f"*/r1/{other}.0")
    described = json.loads((attempt.parents[1] / "point.json").read_text())
    assert attempt.parents[1].name == f"n02-g2-b4-{described['id']}"
    assert "1 of 1 runs pass" in user.hpcddp("analyze", folder / "jobs" / "adhoc", exit_code=3).stdout
    assert not [*(folder / "jobs" / "adhoc").glob(f"*/r1/{smaller}.0/launch.json")]
    said = (folder / f"slurm-{smaller}.out").read_text()
    assert "The step has 2 ranks on 1 node; the spec has 4 ranks on 2 nodes." in said


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


SWEEP = (
    SMALL
    + """
layout: {gpus_per_node: 2, node_type: v100, physical_cores_per_rank: 1, exclusive: false}
points: {batches: {workload.batch_per_gpu: [4, 8]}}
baselines: false
measure: {warmup_steps: 1, steps: 3}
account: proj
slurm: {walltime_min: 5, mem_mb: 2000, spare_nodes: 1}
"""
)


def the_only(study: Path) -> PreflightRecord:
    """What preflight found; each rank of two nodes could be measured."""
    (record,) = preflights_of(Study(study))
    assert (record.device, len(record.hosts), len(record.ranks), record.restart) == ("cpu", 2, 4, 0)
    for each in record.ranks:
        assert all((each.matrix_flops_per_s, each.memory_bytes_per_s, each.node_bytes_per_s, each.neighbour_bytes_per_s))
        assert each.problems == ()
    return record


def test_nodes_are_measured_and_the_runs_go_on(rcc_twin: Twin, tmp_path: Path) -> None:
    """In one allocation with a spare node the runs are on a node that is left; by a job of its own, before the others."""
    user = without_torch(User(rcc_twin, tmp_path))
    (tmp_path / "small.yaml").write_text(SWEEP)
    said = user.hpcddp("submit", "small.yaml", "--runs", "in-one", "--one-allocation", "-y").stdout
    assert "one job of 2 nodes, 1 of them spare, for 10 min" in said
    said = user.hpcddp("submit", "small.yaml", "--runs", "apart", "--preflight", "-y").stdout
    rcc_twin.wait_jobs(200)
    assert user.failures() == {}
    in_one, apart = the_only(tmp_path / "in-one/small"), the_only(tmp_path / "apart/small")
    assert f"preflight    job {apart.job}   2 nodes, " in said
    assert apart.excluded == ()
    launches = [read(file) for file in (tmp_path / "in-one/small").glob("*/r1/*/launch.json")]
    assert {slurm_id(launch["job"]) for launch in launches} == {in_one.job}
    assert {host for launch in launches for host in launch["hosts"]} == {
        next(host for host in in_one.hosts if host not in in_one.excluded)
    }
    for runs, record in (("in-one", in_one), ("apart", apart)):
        status = user.hpcddp("status", runs).stdout
        assert "2 runs: 2 done" in status
        assert f"preflight of job {record.job}: 2 nodes, " in status


def test_two_nodes_are_surveyed(rcc_twin: Twin, tmp_path: Path) -> None:
    """The nodes are one machine without a GPU; where it is busy, the latency is said to be hidden."""
    user = User(rcc_twin, tmp_path)
    said = user.hpcddp("clusters", "survey", "rcc", "--gpus-per-node", "1", "--set", "device=cpu", "-y")
    found = parse_yaml(said.stdout, "the lines")
    assert "hpcddp clusters survey of" in found["sources"]["survey"]
    assert "cpu" in found["node_types"]["v100"]
    fact = found["fabric"]["latency_us"] if "latency between the nodes is unknown" not in said.stderr else None
    assert fact is None or (fact["value"] > 0, fact["source"], fact["conflicts"][0]["value"]) == (True, "survey", 5)
    assert user.failures() == {}


COMM = """
schema: 1
cluster: rcc
workload: {model: mnist-cnn, data: {name: bigmnist}}
layout: {nodes: 1, gpus_per_node: 1, physical_cores_per_rank: 1}
points:
  layouts: {layout.nodes: [1, 2], layout.gpus_per_node: [1, 2], workload.batch_per_gpu: [8, 16]}
device: cpu
repeat: 3
slurm: {walltime_min: 60, mem_mb: 24}
"""
"""With so little memory, which this Slurm counts but does not enforce, messages stay small and the test short."""


@pytest.mark.soak
def test_collectives_of_a_sweeps_layouts(rcc_twin: Twin, tmp_path: Path) -> None:
    """Of 2 ranks on one node and on two, once each, as far as memory goes, after a smoke test; study.json has the sweep as it is
    written.
    """
    user, chosen = User(rcc_twin, tmp_path), ("bench", "comm", "small.yaml", "--where", "ranks == 2", "-y")
    (tmp_path / "small.yaml").write_text(COMM)
    said = user.hpcddp(*chosen, "--smoke").stdout
    assert "2 runs to submit of 2 runs, at most 0.8 node hours" in said
    assert "submitted    2 jobs" in said
    rcc_twin.wait_jobs(300)
    assert user.failures() == {}
    assert "2 runs: 2 done" in user.hpcddp("status", "small").stdout
    assert "nothing to submit" in user.hpcddp(*chosen).stdout
    described = read(tmp_path / "small" / "study.json")
    assert ([entry["repeat"] for entry in described["points"]], described["sweep"]["repeat"]) == ([1, 1], 3)
    assert "2 of 2 runs pass" in user.hpcddp("analyze", "small", "--to", "csv").stdout
    table = (tmp_path / "small" / "report" / "comm.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(table.splitlines()))
    assert {(row["nodes"], row["ranks"], row["backend"]) for row in rows} == {("1", "2", "gloo"), ("2", "2", "gloo")}
    assert {row["op"] for row in rows} == {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "send_recv"}
    largest = {nodes: max(int(row["bytes"]) for row in rows if row["nodes"] == nodes) for nodes in ("1", "2")}
    assert largest == {"1": 4 * 2**20, "2": 4 * 2**20}
    assert {row["correct"] for row in rows} == {"True"}


@pytest.mark.soak
def test_collectives_of_a_layout_without_a_sweep(rcc_twin: Twin, tmp_path: Path) -> None:
    user, layout = User(rcc_twin, tmp_path), ("--nodes", 2, "--gpus-per-node", 1)
    changes = ("--set", "device=cpu", "--set", "layout.physical_cores_per_rank=1", "--set", "slurm.mem_mb=2")
    user.hpcddp("bench", "comm", "--cluster", "rcc", *layout, *changes, "-y", "--wait")
    assert "2 nodes x 1 rank" in user.hpcddp("analyze", "bench-comm").stdout
