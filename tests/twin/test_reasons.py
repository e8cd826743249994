"""Faults provoked under a real Slurm: how soon a job is over, what `status` says of it, and what it says to do next."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcddp.cluster.profile_file import load_profile
from tests.machine import CHECKOUT
from tests.twin.daemons import wait_until
from tests.twin.shape import Site
from tests.twin.stand_in import CANCELLED, ENDLESS, KILLED
from tests.twin.twin import Twin, Twins
from tests.twin.userland import SMALL, User, read, without_torch

SWEEP = (
    SMALL
    + """
layout: {gpus_per_node: 1, physical_cores_per_rank: 1, exclusive: false}
points:
  slurms: {workload.model: ["troubled:killed", "troubled:cancelled", "troubled:endless"]}
  data: {workload.data.name: [mnist], workload.data.root: [/nowhere]}
measure: {warmup_steps: 2, steps: 100000}
slurm: {walltime_min: 10, mem_mb: 500}
"""
)

PATIENCE_S = 240.0

LOST, READ_ONLY = "gn06", "gn05"
"""Nodes that no job is on which does not ask for them."""


@pytest.fixture(scope="module")
def runs(rcc_twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `status` says as JSON of each run that Slurm ended, by model; `live`: one that ran.

    Each in a study of its own: `module`, `lost`, `preempted`, `walled`.
    """
    with _preemption(rcc_twin):
        return _provoke(rcc_twin, tmp_path_factory)


def with_troubles(user: User) -> User:
    """Has the sweep and its models."""
    (user.home / "troubles.yaml").write_text(SWEEP)
    shutil.copy(CHECKOUT / "tests" / "twin" / "troubled.py", user.home)
    return user


def _provoke(rcc_twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    user = with_troubles(without_torch(User(rcc_twin, tmp_path_factory.mktemp("user"))))
    (user.home / "module.yaml").write_text(SWEEP.replace("cluster: rcc", "cluster: ./strange.yaml"))
    profile = (CHECKOUT / "clusters" / "rcc.yaml").read_text()
    (user.home / "strange.yaml").write_text(profile.replace("value: [pytorch]", "value: [pytorch/99]"))
    for name in ("lost", "preempted", "walled"):
        (user.home / f"{name}.yaml").write_text(SWEEP)
    user.hpcddp("submit", "troubles.yaml", "-y", "--group", "slurms")
    job = _once_running(user, "troubles", ENDLESS)["job"]
    rcc_twin.run(["scontrol", "update", f"JobId={job}", "EndTime=now+20"])  # looked at twice a minute; a past one is refused
    user.hpcddp("submit", "module.yaml", "-y", "--group", "data")
    with _read_only(rcc_twin, READ_ONLY, user.home / "walled"):
        user.hpcddp("submit", "walled.yaml", "-y", "--group", "data", "--set", f"slurm.nodelist={READ_ONLY}")
        wait_until(lambda: _runs(user, "walled")["mnist"]["phase"] == "failed", [], "a run without a log", PATIENCE_S)
    wait_until(lambda: _runs(user, "troubles")[CANCELLED]["left_s"] is not None, [], "a run that trains", PATIENCE_S)
    live = _runs(user, "troubles")[CANCELLED]
    user.hpcddp("cancel", "troubles", live["label"], "-y")
    _run_endless(user, "lost", "--set", f"slurm.nodelist={LOST}")
    _run_endless(user, "preempted", "--set", "slurm.qos=dev", "--set", f"slurm.nodelist={READ_ONLY}")
    urgent = ("--account=proj", "--partition=gpu", f"--nodelist={READ_ONLY}", "--exclusive", "--wrap=true")
    rcc_twin.run(["sbatch", *urgent], cwd=user.home)
    rcc_twin.run(["scontrol", "update", f"NodeName={LOST}", "State=DOWN", "Reason=test"])
    rcc_twin.wait_jobs(PATIENCE_S)
    rcc_twin.run(["scontrol", "update", f"NodeName={LOST}", "State=RESUME"], check=False)  # unless it has come back by itself
    single = {study: run for study in ("module", "lost", "preempted", "walled") for run in _runs(user, study).values()}
    return {**_runs(user, "troubles"), **single, "live": live}


@contextlib.contextmanager
def _preemption(twin: Twin) -> Iterator[None]:
    """A job without a QOS may have the place of one of `dev`."""
    file = twin.folder / "slurm.conf"
    before = file.read_text()
    twin.run(["sacctmgr", "--immediate", "--quiet", "modify", "qos", "normal", "set", "preempt=dev"])
    file.write_text(f"{before}PreemptType=preempt/qos\nPreemptMode=CANCEL\n")
    try:
        twin.run(["scontrol", "reconfigure"])
        yield
    finally:
        file.write_text(before)
        twin.run(["scontrol", "reconfigure"])


@contextlib.contextmanager
def _read_only(twin: Twin, node: str, folder: Path) -> Iterator[None]:
    """The folder, which is made, on that node alone."""
    folder.mkdir()
    there = ("nsenter", f"--mount=/proc/{twin.node_processes(node)[0]}/ns/mnt")
    twin.run([*there, "mount", "--bind", str(folder), str(folder)])
    try:
        twin.run([*there, "mount", "-o", "remount,bind,ro", str(folder)])
        yield
    finally:
        twin.run([*there, "umount", str(folder)])


def _run_endless(user: User, study: str, *options: str) -> None:
    user.hpcddp("submit", f"{study}.yaml", "-y", "-J", "--no-requeue", "--where", f"workload.model == '{ENDLESS}'", *options)
    _once_running(user, study, ENDLESS)


def _once_running(user: User, study: str, name: str) -> Any:
    wait_until(lambda: _runs(user, study)[name]["phase"] == "running", [], f"{name} to run", PATIENCE_S)
    return _runs(user, study)[name]


def _runs(user: User, study: str) -> dict[str, Any]:
    """By model; those without trouble by their data."""
    (answer,) = user.json("status", study, exit_code=3)["studies"]
    return {_name(user.home / study / run["label"]): run for run in answer["runs"]}


def _name(point: Path) -> str:
    workload = read(point / "point.json")["point"]["workload"]
    return str(workload["model"] if ":" in workload["model"] else workload["data"]["name"])


@pytest.mark.parametrize(
    ("name", "says", "next_step", "line"),
    [
        (CANCELLED, "cancelled by you (CANCELLED)", "submit it again if that was not meant", None),
        (ENDLESS, "it reached its time limit", "raise slurm.walltime_min in the sweep", None),
        (
            "walled",
            "cannot write the log of its job script",
            "choose with --runs a folder that the compute nodes can write to",
            None,
        ),
        (KILLED, "died without an error message (task 0: Killed)", "--set slurm.exclude=gn0", "srun: error: gn0"),
        ("preempted", "preempted by a job of higher priority (PREEMPTED)", "measure.resume: true", None),
        ("lost", f"{LOST} failed (NODE_FAIL)", f"--set slurm.exclude={LOST}", None),
        (
            "module",
            "module `pytorch/99` does not exist on its node",
            "choose a module that `module avail` lists there",
            "pytorch/99",
        ),
    ],
)
def test_each_fault_is_a_sentence_with_a_next_step(
    runs: dict[str, Any], name: str, says: str, next_step: str, line: str | None
) -> None:
    """And the line that says so, where the sentence does not have it. What the worker tells itself: tests/worker."""
    run = runs[name]
    assert run["phase"] == "failed"
    assert says in run["detail"], run
    assert next_step in run["next_step"], run
    assert line is None or line in run["line"], run


def test_what_ran_told_how_far_it_was(runs: dict[str, Any]) -> None:
    """Steps of those asked for, and how long the rest would take at that pace: 50 ms and more a step."""
    run = runs["live"]
    assert (run["phase"], run["steps_total"]) == ("running", 100_002)
    assert run["left_s"] > 0.05 * (100_000 - run["steps_done"])
    assert run["detail"].startswith("the run will not finish: it has "), run  # an hour and more in a job of ten minutes


FAULTS = (
    SMALL
    + """
layout: {nodes: 2, gpus_per_node: 1, physical_cores_per_rank: 1}
points:
  faults: {workload.model: ["troubled:died", "troubled:hung"]}
measure: {warmup_steps: 2, steps: 1000}
slurm: {walltime_min: 10}
"""
)


@pytest.fixture(scope="module")
def faults(rcc_twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> User:
    """Both of their jobs are over."""
    user = with_troubles(User(rcc_twin, tmp_path_factory.mktemp("user")))
    (user.home / "faults.yaml").write_text(FAULTS)
    user.hpcddp("submit", "faults.yaml", "-y")
    rcc_twin.wait_jobs(PATIENCE_S)
    return user


@pytest.mark.soak
@pytest.mark.parametrize(("kind", "within_s"), [("died", 10), ("hung", 30)])
def test_the_job_ends_soon_and_names_rank_and_host(faults: User, kind: str, within_s: float) -> None:
    """A rank that is killed in the middle of an all-reduce ends it in 10 s, one that hangs in 30 s."""
    (began,) = faults.home.rglob(f"began.{kind}")
    ended = {row["JobID"]: time.mktime(time.strptime(row["End"], "%Y-%m-%dT%H:%M:%S")) for row in faults.twin.sacct()}
    (end_file,) = (file for file in faults.home.glob("faults/*/r1/*/end.json") if _name(file.parents[2]) == f"troubled:{kind}")
    end, host = read(end_file), read(end_file.with_name("launch.json"))["hosts"][1]
    assert (end["state"], end["fault"]["kind"], end["fault"]["rank"]) == ("failed", kind, 1)
    assert end["reason"].startswith(f"rank 1 on {host} ")
    assert ended[end_file.parent.name.partition(".")[0]] - float(began.read_text()) < within_s, end


BARE = (
    SMALL
    + """
layout: {exclusive: false, physical_cores_per_rank: 1}
points:
  ranks: {layout.gpus_per_node: [1]}
measure: {warmup_steps: 1, steps: 3}
slurm: {walltime_min: 5, mem_mb: 2000}
"""
)


@pytest.fixture(scope="module")
def bare(twins: Twins, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    """A cluster that keeps no accounts of its jobs and has no cgroups."""
    twins.close()
    site = Site(accounting=False, memory_kill=True)
    with Twin(load_profile("rcc"), tmp_path_factory.mktemp("bare"), nodes=1, site=site) as twin:
        yield twin


def phases(user: User) -> list[tuple[str, str | None]]:
    (study,) = user.json("status", "sweep", exit_code=3)["studies"]
    return [(run["phase"], run["detail"]) for run in study["runs"]]


@pytest.mark.soak
def test_submit_status_and_wait_without_accounting(bare: Twin, tmp_path: Path) -> None:
    """A held run is queued and, cancelled, has failed; submitted again it is waited for and done; then nothing is left."""
    user, held = without_torch(User(bare, tmp_path)), ("submit", "sweep.yaml", "-y", "-J", "--hold")
    assert bare.run(["sacct"], check=False).returncode != 0
    (user.home / "sweep.yaml").write_text(BARE)
    user.hpcddp(*held)
    assert phases(user) == [("queued", "held by its user; release it with `scontrol release` (JobHeldUser)")]
    assert "nothing to submit" in user.hpcddp(*held).stdout
    bare.run(["scancel", f"--user={os.getuid()}"])
    assert phases(user) == [("failed", "cancelled (CANCELLED)")]
    assert "submitted    1 job" in user.hpcddp("submit", "sweep.yaml", "-y", "--wait").stdout
    (study,) = user.json("status", "sweep")["studies"]
    assert [run["phase"] for run in study["runs"]] == ["done"]
    assert "nothing to submit" in user.hpcddp("submit", "sweep.yaml", "-y").stdout
    assert len(list((user.home / "sweep").glob("*/r1/*/end.json"))) == 1


@pytest.mark.soak
def test_more_memory_than_it_asked_for_without_cgroups(bare: Twin, tmp_path: Path) -> None:
    """Slurm says FAILED; what slurmstepd logs says why, and that more must be asked for."""
    user = with_troubles(User(bare, tmp_path))
    greedy = {"mnist-cnn": '"troubled:greedy"', "steps: 3": "steps: 100000", "mem_mb: 2000": "mem_mb: 1000"}
    text = BARE
    for before, now in greedy.items():
        text = text.replace(before, now)
    (user.home / "greedy.yaml").write_text(text)
    user.hpcddp("submit", "greedy.yaml", "-y", "--wait", exit_code=1)
    (study,) = user.json("status", "greedy", exit_code=3)["studies"]
    (run,) = study["runs"]
    assert (run["phase"], run["detail"]) == ("failed", "it used more memory than Slurm gave it")
    assert run["next_step"].startswith("request more with slurm.mem_mb in the sweep")
    assert "exceeded memory limit" in run["line"]
