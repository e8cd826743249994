"""A whole run: real ranks over gloo, and the records they leave."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import os
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from torch.nn.parallel import DistributedDataParallel

from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.point import Data
from hpcddp.core.records import AFTER_PAUSE, PARTS, STEP_COLUMNS, WARMUP, error_file, steps_file
from hpcddp.core.written_lists import cpu_list
from hpcddp.worker.launch_record import tf32
from hpcddp.worker.main import run
from hpcddp.worker.training import parallel
from hpcddp.worker.training.models import build_model
from tests.worker import forked, given

JOB = "7"


def run_job(study: Path, what: Any, **changes: Any) -> tuple[Path, list[forked.Outcome]]:
    """The attempt's folder and how each rank ended."""
    spec = given.job(study, what, **changes)
    outcomes = forked.ranks(study / "output", what.ranks, run, spec_to_dict(spec), nodes=what.layout.nodes)
    return spec.attempt_dir(JOB, 0), outcomes


def read(file: Path) -> Any:
    return json.loads(file.read_text())


def rows(attempt: Path, rank: int) -> list[dict[str, str]]:
    with steps_file(attempt, rank).open(newline="") as lines:
        return list(csv.DictReader(lines))


def gate(attempt: Path, name: str) -> Any:
    (found,) = [gate for gate in read(attempt / "end.json")["gates"] if gate["name"] == name]
    return found


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records of 4 ranks on 2 nodes: 2 warm-up steps, 4 timed ones, evaluated."""
    study = tmp_path_factory.mktemp("done")
    attempt, outcomes = run_job(study, given.point(4, nodes=2), git_commit="0123abc+", profile={"name": "here"})
    assert [outcome.code for outcome in outcomes] == [0, 0, 0, 0], "\n".join(outcome.output for outcome in outcomes)
    return attempt


@pytest.mark.dear
def test_every_rank_writes_a_row_per_step(done: Path) -> None:
    """Rows are the steps from 0 on, in the columns of the contract; warm-up and what follows the checksum in it are flagged."""
    for rank in range(4):
        assert tuple(rows(done, rank)[0]) == STEP_COLUMNS
        assert [int(row["step"]) for row in rows(done, rank)] == [0, 1, 2, 3, 4, 5]
        assert [int(row["flags"]) for row in rows(done, rank)] == [WARMUP, WARMUP | AFTER_PAUSE, 0, 0, 0, 0]


@pytest.mark.dear
def test_parts_fill_the_step(done: Path) -> None:
    """On the host's clock the parts are contiguous: they add up to the total exactly, and no part is negative."""
    for row in rows(done, 1):
        parts = [int(row[f"{part}_ns"]) for part in PARTS]
        assert sum(parts) == int(row["total_ns"])
        assert min(parts) >= 0
        assert row["h2d_hidden_ns"] == ""  # nothing is copied behind other work: not measured


@pytest.mark.dear
def test_timed_steps_follow_each_other_without_a_gap(done: Path) -> None:
    """A step starts where the one before ended, so that their sum is the time the training took."""
    timed = rows(done, 2)[2:]
    for before, after in itertools.pairwise(timed):
        assert int(after["start_ns"]) == int(before["start_ns"]) + int(before["total_ns"])


@pytest.mark.dear
def test_end_names_rows_and_checksum_of_each_file(done: Path) -> None:
    """Who reads the records can tell a whole file from a torn one."""
    for entry in read(done / "end.json")["ranks"]:
        data = steps_file(done, entry["rank"]).read_bytes()
        assert (entry["rows"], entry["crc32"]) == (6, zlib.crc32(data))
        assert entry["host"] == f"node{entry['rank'] // 2}"


@pytest.mark.dear
def test_end_is_written_last(done: Path) -> None:
    """Where end.json is, everything else is complete."""
    files = [file for file in done.rglob("*") if file.is_file()]
    written_ns = (done / "end.json").stat().st_mtime_ns
    assert written_ns == max(file.stat().st_mtime_ns for file in files)  # a kernel's clock for files ticks a few times a second
    assert not [file.name for file in files if file.name.startswith(".")]


@pytest.mark.dear
def test_end_says_what_was_trained(done: Path) -> None:
    """State, batch, steps and losses; without evaluation none is claimed."""
    end = read(done / "end.json")
    assert (end["schema"], end["state"], end["reason"]) == (1, "done", None)
    assert (end["global_batch"], end["steps"], end["evaluation"]) == (16, 6, None)
    assert 1 < end["loss_last"] < 4
    assert all(gate["passed"] for gate in end["gates"])


@pytest.mark.dear
def test_end_has_the_rate_of_the_loaders(done: Path) -> None:
    """Four ranks that load for themselves, four samples in each timed step and the one before these."""
    loader = read(done / "end.json")["loader"]
    assert (loader["workers"], loader["samples"], loader["batches"]) == (0, 80, 20)
    slowest, fastest = (4 * loader["samples"] / loader[key] for key in ("read_s", "compute_s"))  # apart where a rank is held up
    assert 0.999 * slowest <= loader["samples_per_s"] <= 1.9 * fastest
    assert 0 < loader["compute_s"] <= loader["read_s"] * 1.01


@pytest.mark.dear
def test_launch_says_where_it_ran(done: Path) -> None:
    """Hosts in order of their ranks, versions, what the submitting side passed on."""
    launch = read(done / "launch.json")
    assert (launch["hosts"], launch["ranks"], launch["ranks_per_node"]) == (["node0", "node1"], 4, 2)
    assert (launch["job"], launch["restart"], launch["run"], launch["backend"]) == (JOB, 0, 1, "local")
    assert (launch["git_commit"], launch["profile"], launch["gpus"]) == ("0123abc+", {"name": "here"}, [])
    assert launch["data"] == {"name": "synthetic-mnist", "root": None, "samples": 60_000}
    assert launch["started_unix_ns"] < read(done / "end.json")["ended_unix_ns"]
    assert len(launch["env_id"]) == 12
    assert launch["versions"]["torch"]
    assert launch["tf32"] is None  # a GPU's
    assert [binding["cpus"] for binding in launch["bindings"]] == [cpu_list(os.sched_getaffinity(0))] * 4


def test_the_arithmetic_of_fp32_is_known() -> None:
    """What torch allows by default: convolutions in TF32, other products in full."""
    assert tf32() == {"convolutions": True, "products": False}


@pytest.mark.dear
def test_each_node_is_described_once(done: Path) -> None:
    """By its first rank: processors, and what Slurm's binding left of them."""
    assert sorted(file.name for file in (done / "nodes").iterdir()) == ["node0.json", "node1.json"]
    node = read(done / "nodes" / "node1.json")
    assert node["cpus"] == os.cpu_count()
    assert node["cpus_usable"] == len(os.sched_getaffinity(0))


def test_one_rank_runs_alone(tmp_path: Path) -> None:
    """The baseline is the same program with one rank; without warm-up every row counts."""
    attempt, (outcome,) = run_job(tmp_path, given.point(1, warmup=0, steps=3))
    assert outcome.code == 0, outcome.output
    assert outcome.value["gates_passed"] is True
    assert [row["flags"] for row in rows(attempt, 0)] == ["0", "0", "0"]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision(tmp_path: Path, precision: str) -> None:
    """Autocast, with micro-batches, in the other memory layout and with loader processes, passes all gates."""
    what = given.point(1, precision=precision, accumulate=2, channels_last=True, loader_workers_per_rank=2)
    attempt, (outcome,) = run_job(tmp_path, what)
    assert outcome.code == 0, outcome.output
    assert all(gate["passed"] for gate in read(attempt / "end.json")["gates"])


def test_a_rank_that_fails_leaves_its_reason(tmp_path: Path) -> None:
    """Type, message, host and traceback in a file of its own; no rank survives and nobody claims the run is done."""
    what = given.point(2, model="tests.worker.test_run:fails_on_rank_one")
    attempt, outcomes = run_job(tmp_path, what)
    assert [outcome.code for outcome in outcomes] == [1, 1]
    error = read(error_file(attempt, 1))
    assert (error["type"], error["message"], error["host"]) == ("ValueError", "rank 1 has had enough", "node0")
    assert "fails_on_rank_one" in error["traceback"]
    assert "rank 1 has had enough" in outcomes[1].output
    assert read(attempt / "end.json")["state"] == "failed"
    assert "rank 1 has had enough" in read(attempt / "end.json")["reason"]


def fails_on_rank_one(classes: int) -> Any:
    if os.environ["SUBMITIT_LOCAL_GLOBALID"] == "1":
        raise ValueError("rank 1 has had enough")
    return build_model("mnist-cnn", classes=classes, height=28, seed=1)


def test_an_error_in_a_loaders_process_is_said_in_its_own_words(tmp_path: Path) -> None:
    """The reason is one sentence; torch's traceback of the other process is under `traceback`."""
    what = given.point(1, data=Data(name="tests.worker.test_run:broken"), loader_workers_per_rank=1)
    attempt, (outcome,) = run_job(tmp_path, what)
    assert outcome.code == 1
    assert read(attempt / "end.json")["reason"] == "rank 0 on node0: picture 17 cannot be decoded"
    assert "in DataLoader worker process 0" in read(error_file(attempt, 0))["traceback"]


class Broken:
    """A user's own data set of which no sample can be read."""

    classes, shape = 10, (1, 28, 28)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        raise HpcddpError("picture 17 cannot be decoded")


def broken(root: str | None, split: str) -> Broken:
    return Broken()


def test_a_gpu_point_never_runs_on_a_cpu(tmp_path: Path) -> None:
    """Without a GPU it fails, naming the host and the next step."""
    attempt, (outcome,) = run_job(tmp_path, given.point(1, device="cuda"))
    assert outcome.code == 1
    message = read(error_file(attempt, 0))["message"]
    assert "node0" in message
    assert "`device: cpu`" in message
    assert not steps_file(attempt, 0).exists()


def test_the_step_must_have_the_points_ranks(tmp_path: Path) -> None:
    """A script whose numbers were edited does not leave figures under the wrong point."""
    spec = given.job(tmp_path, given.point(2))
    (outcome,) = forked.ranks(tmp_path / "output", 1, run, spec_to_dict(spec))
    assert outcome.code == 1
    assert "1 ranks on 1 node(s), the point asks for 2" in read(error_file(spec.attempt_dir(JOB, 0), 0))["message"]


def test_a_second_worker_does_not_overwrite_records(tmp_path: Path) -> None:
    """Records of an attempt are written once: a worker that finds them stops and changes nothing."""
    attempt, _ = run_job(tmp_path, given.point(1, steps=1))
    before = {file: file.read_bytes() for file in attempt.rglob("*") if file.is_file()}
    attempt, (outcome,) = run_job(tmp_path, given.point(1, steps=1))
    assert outcome.code == 1
    assert "run this point in a job of its own" in outcome.output
    assert {file: file.read_bytes() for file in attempt.rglob("*") if file.is_file()} == before


class Bypassed(DistributedDataParallel):
    """What a mistaken worker does: the model is wrapped, and then called past the wrapper."""

    def forward(self, *inputs: Any) -> Any:
        return self.module(*inputs)


def run_bypassed(spec: dict[str, Any]) -> Any:
    vars(parallel)["DistributedDataParallel"] = Bypassed
    return run(spec)


@pytest.mark.dear
def test_a_model_that_bypasses_ddp_is_caught(tmp_path: Path) -> None:
    """Parameters drift apart when gradients are not averaged: the gate says so, and where it was first seen."""
    spec = given.job(tmp_path, given.point(2))
    summaries = forked.values(tmp_path / "output", 2, run_bypassed, spec_to_dict(spec))
    found = gate(spec.attempt_dir(JOB, 0), "parameters agree")
    assert summaries[0]["gates_passed"] is False
    assert found["passed"] is False
    assert "after step 1" in found["evidence"]


def test_an_infinite_loss_is_caught(tmp_path: Path) -> None:
    """In the middle of a run, which ends there; the records stay readable JSON, and the rows say which step it was."""
    attempt, (outcome,) = run_job(tmp_path, given.point(1, optimizer=dataclasses.replace(given.workload().optimizer, lr=1e30)))
    assert outcome.code == 1
    end = read(attempt / "end.json")
    step = next(row["step"] for row in rows(attempt, 0) if not row["loss_e9"])
    assert re.match(rf"rank 0 on node0: the loss of step {step} is (nan|inf): training diverged; lower workload", end["reason"])
    assert (end["state"], end["fault"]["kind"]) == ("failed", "diverged")
