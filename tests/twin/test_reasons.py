"""Faults provoked under a real Slurm: what `status` says of each, and what it says to do next."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fresh_install import CHECKOUT
from tests.twin.daemons import wait_until
from tests.twin.twin import Twin
from tests.twin.userland import SMALL, User

SWEEP = (
    SMALL
    + """
layout: {gpus_per_node: 1, physical_cores_per_rank: 1, exclusive: false}
points:
  slurms: {workload.model: ["troubled:killed", "troubled:cancelled", "troubled:endless"]}
  memory: {workload.model: ["troubled:starved", "troubled:full"]}
  disk: {workload.model: ["troubled:readonly"], measure.steps: [20]}
  ranks: {workload.model: ["troubled:late", "troubled:stopped"], layout.nodes: [2]}
  gpu: {device: [cuda]}
  data: {workload.data.name: [mnist], workload.data.root: [/nowhere]}
measure: {warmup_steps: 2, steps: 100000}
slurm: {walltime_min: 10, mem_mb: 500}
"""
)

PATIENCE_S = 240.0

OF_THE_WORKER = ("memory", "disk", "ranks", "gpu", "data")
"""Groups whose faults the worker tells: under a Slurm in `make soak`, in forked ranks in `make test` (tests/worker)."""

CANCELLED, ENDLESS = "troubled:cancelled", "troubled:endless"

NO_GPU = (
    ("is built without CUDA or ROCm: install the build the profile names", "fix `compute` of the cluster's profile")
    if torch.version.cuda is None
    else ("finds no GPU (CUDA_VISIBLE_DEVICES ", "tell its administrators, and --set slurm.exclude=gn0")
)
"""What is said and what is to be done: a twin's nodes have no GPU, and its torch is this one."""

LOST, READ_ONLY = "gn06", "gn05"
"""Nodes that no job is on which does not ask for them."""


@pytest.fixture(scope="module")
def runs(rcc_twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `status` says as JSON of each run that Slurm ended, by model; `live`: one that ran.

    Each in a study of its own: `module`, `lost`, `preempted`, `walled`.
    """
    with _preemption(rcc_twin):
        return _provoke(rcc_twin, tmp_path_factory)


@pytest.fixture(scope="module")
def workers_runs(rcc_twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same of OF_THE_WORKER, by model, data or device."""
    user = _user(rcc_twin, tmp_path_factory)
    user.hpcddp("submit", "troubles.yaml", "-y", *_groups(*OF_THE_WORKER))
    rcc_twin.wait_jobs(PATIENCE_S)
    return _runs(user, "troubles")


def _groups(*names: str) -> list[str]:
    return [word for name in names for word in ("--group", name)]


def _user(twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> User:
    """Has the sweep and its models."""
    user = User(twin, tmp_path_factory.mktemp("user"))
    (user.home / "troubles.yaml").write_text(SWEEP)
    shutil.copy(CHECKOUT / "tests" / "twin" / "troubled.py", user.home)
    return user


def _provoke(rcc_twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    user = _user(rcc_twin, tmp_path_factory)
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
    """By model; those without trouble by their data or device. `hosts`: of each rank, where it came so far."""
    (answer,) = user.json("status", study, exit_code=3)["studies"]
    points = {run["label"]: user.home / study / run["label"] for run in answer["runs"]}
    return {_name(points[run["label"]]): {**run, "hosts": _hosts(points[run["label"]])} for run in answer["runs"]}


def _hosts(point: Path) -> list[str]:
    return [host for launch in point.glob("r1/*/launch.json") for host in json.loads(launch.read_text())["hosts"]]


def _name(point: Path) -> str:
    plain = json.loads((point / "point.json").read_text())["point"]
    model = str(plain["workload"]["model"])
    if ":" in model:
        return model
    return str(plain["workload"]["data"]["name"] if plain["device"] == "cpu" else plain["device"])


@pytest.mark.parametrize(
    ("name", "says", "next_step", "line"),
    [
        (CANCELLED, "cancelled by you (CANCELLED)", "submit it again if that was not meant", None),
        (ENDLESS, " was over (TIMEOUT)", "raise slurm.walltime_min in the sweep", None),
        ("walled", "cannot write the log of its job script", "where the compute nodes may write, with --runs", None),
        ("troubled:killed", "died without an error message (task 0: Killed)", "--set slurm.exclude=gn0", "srun: error: gn0"),
        ("preempted", "room for a job of higher priority (PREEMPTED)", "measure.resume: true", None),
        ("lost", f"{LOST} failed (NODE_FAIL)", f"--set slurm.exclude={LOST}", None),
        ("module", "there is no module `pytorch/99` on its node", "name one that `module avail` lists there", "pytorch/99"),
    ],
)
def test_each_fault_is_a_sentence_with_a_next_step(
    runs: dict[str, Any], name: str, says: str, next_step: str, line: str | None
) -> None:
    """And the line that says so, where the sentence does not have it."""
    check_sentence(runs[name], says, next_step, line)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "says", "next_step", "line"),
    [
        ("troubled:starved", ": 2 is the largest power of two", "set workload.batch_per_gpu to 2", "DefaultCPUAllocator"),
        ("troubled:full", "cannot be written: No space left on device", "make room there", None),
        ("troubled:readonly", "mounted read-only there", "where the compute nodes may write, with --runs", "end.json"),
        ("troubled:late", "rank 1 on {1} kept the others waiting", "{1} fails every time: --set slurm.exclude={1}", "Timed out"),
        ("troubled:stopped", "rank 1 on {1} has not been heard of for", "--set slurm.exclude={1}", None),
        ("mnist", "in /nowhere (no such folder on ", "put the data where every node sees them", None),
        ("cuda", *NO_GPU, None),
    ],
)
def test_each_fault_of_the_workers_too(
    workers_runs: dict[str, Any], name: str, says: str, next_step: str, line: str | None
) -> None:
    """In the same form."""
    check_sentence(workers_runs[name], says, next_step, line)


def check_sentence(run: dict[str, Any], says: str, next_step: str, line: str | None) -> None:
    assert run["phase"] == "failed"
    assert says.format(*run["hosts"]) in run["detail"], run
    assert next_step.format(*run["hosts"]) in run["next_step"], run
    assert line is None or line in run["line"], run


def test_what_ran_told_how_far_it_was(runs: dict[str, Any]) -> None:
    """Steps of those asked for, and how long the rest would take at that pace: 50 ms and more a step."""
    run = runs["live"]
    assert (run["phase"], run["steps_total"]) == ("running", 100_002)
    assert run["left_s"] > 0.05 * (100_000 - run["steps_done"])
    assert run["detail"].startswith("it will not finish: its time limit is in "), run  # an hour and more in a job of ten minutes
