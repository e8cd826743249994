"""A run that is interrupted and taken up again trains as if it had not been: real ranks, real signals, real kills."""

from __future__ import annotations

import csv
import dataclasses
import functools
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from hpcddp.analysis.records.attempts import AttemptRecords, buckets_of_run, read_attempts
from hpcddp.analysis.records.json_files import read_launch, read_training_end
from hpcddp.analysis.records.steps import joined
from hpcddp.analysis.runs.load_run import load_run
from hpcddp.analysis.runs.run import Run
from hpcddp.core.point import Data, Ddp, Optimizer, Point
from hpcddp.core.records import AFTER_PAUSE, WARMUP, buckets_file
from hpcddp.core.run_root import Study
from hpcddp.worker import training_run
from hpcddp.worker.training import preemption
from hpcddp.worker.training.trainer import Trainer
from tests.worker import given
from tests.worker.forked import Ran, ran
from tests.worker.test_gates import small as of_batchnorm

HERE = "tests.worker.test_resume"
RANKS, WARMUP_STEPS, STEPS = 3, 5, 80
"""From three ranks on the sums in DDP's buckets depend on what lies where."""

PARTS = [(0, 3), (3, 30), (33, 20), (53, 27)]
"""First step, and steps, of the attempts of a run that is told to stop in its warm-up, after it, and again."""


def drawing(classes: int) -> nn.Module:
    """With what a checkpoint holds beside parameters, BatchNorm's statistics and random draws, and several buckets."""
    hidden = [part for _ in range(3) for part in (nn.Linear(48, 48), nn.ReLU())]
    begin = (nn.AdaptiveAvgPool2d(7), nn.Flatten(), nn.Linear(49, 48), nn.BatchNorm1d(48), nn.Dropout(0.3))
    return nn.Sequential(*begin, *hidden, nn.Linear(48, classes))


class Pictures(TensorDataset):
    """20 steps of 3 ranks with 4 samples each: a run of 80 steps has four epochs."""

    classes = 10

    def __init__(self, root: str | None, split: str) -> None:
        super().__init__(*given.mnist(250).batch(torch.arange(250)))


def small(ranks: int = RANKS, *, steps: int = STEPS, ddp: Ddp | None = None, **measure: Any) -> Point:
    """With checkpoints where it is told to stop, and nowhere else."""
    return given.point(
        ranks,
        warmup=WARMUP_STEPS,
        steps=steps - WARMUP_STEPS,
        model=f"{HERE}:drawing",
        data=Data(name=f"{HERE}:Pictures"),
        ddp=ddp or Ddp(bucket_cap_mb=0.01),
        measure=measure if "resume" in measure else {"resume": True, "checkpoint_every_min": 0.0, **measure},
    )


def interrupted(stop_after: int | None, killed_in: int | None, rank: int) -> None:
    """A rank is told to stop, as every rank is, or rank 2 killed in a step."""
    vars(preemption)["POLL_EVERY_S"] = 0.0  # after every step
    real_step, steps_done = Trainer.step, 0

    def step(self: Trainer, *arguments: Any) -> Any:
        nonlocal steps_done
        steps_done += 1
        if steps_done == killed_in and rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        loss = real_step(self, *arguments)
        if steps_done == stop_after:
            os.kill(os.getpid(), signal.SIGUSR2)
        return loss

    Trainer.step = step  # type: ignore[method-assign, assignment]


def launch(study: Path, what: Point, job: str, stop_after: int | None = None, killed_in: int | None = None) -> Ran:
    plant = functools.partial(interrupted, stop_after, killed_in)
    found = ran(study, what, plant, may_fail=killed_in is not None, job=job)
    assert any(found.codes) == (killed_in is not None)
    return found


def at_the_end(done: Ran) -> list[str]:
    """The checksums of parameters and buffers with which a run that is done ended; all gates passed."""
    assert done.failed == {}
    return [done.gates[name]["evidence"].split()[-1] for name in ("parameters agree", "buffers agree")]


def steps_of(done: Ran, rank: int) -> list[int]:
    return [int(row["step"]) for row in done.rows(rank)]


def flags_of(done: Ran, rank: int) -> list[int]:
    return [int(row["flags"]) for row in done.rows(rank)]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return at_the_end(launch(tmp_path_factory.mktemp("whole"), small(), "7"))


@pytest.fixture(scope="module")
def thrice(tmp_path_factory: pytest.TempPathFactory) -> list[Ran]:
    study, stops = tmp_path_factory.mktemp("thrice"), (*(steps for _, steps in PARTS[:-1]), None)
    return [launch(study, small(comm="on"), f"{7 + number}", stop_after=steps) for number, steps in enumerate(stops)]


@pytest.mark.dear
def test_three_interruptions_do_not_show(thrice: list[Ran], uninterrupted: list[str]) -> None:
    assert at_the_end(thrice[-1]) == uninterrupted


@pytest.mark.dear
def test_every_step_is_recorded_by_the_attempt_that_made_it(thrice: list[Ran]) -> None:
    for part, (first, steps) in zip(thrice, PARTS, strict=True):
        for rank in range(RANKS):
            assert steps_of(part, rank) == list(range(first, first + steps))
        assert (part.end["first_step"], part.end["steps"]) == (first, first + steps)
    by_attempt = zip(("7.0", "8.0", "9.0", "10.0"), PARTS, strict=True)
    history = [{"attempt": name, "first_step": first, "steps": steps} for name, (first, steps) in by_attempt]
    assert thrice[-1].end["history"] == history
    resumed = thrice[-1].read("launch.json")["resumed"]
    assert (resumed["attempt"], resumed["step"], resumed["history"]) == ("9.0", PARTS[-1][0], history[:3])
    assert thrice[0].read("launch.json")["resumed"] is None


def counted(last: Path, what: Point) -> tuple[Run, list[AttemptRecords]]:
    """The run as analysis has it, and what it took of each attempt."""
    parts = read_attempts(last, read_launch(last, what), read_training_end(last), what, [])
    blank = Run(label=what.label, run=1, state="missing", point=what)
    return load_run(Study(last.parents[2]).attempts(what.label, 1), blank, {}, []), parts


@pytest.mark.dear
def test_analysis_counts_every_step_once(thrice: list[Ran]) -> None:
    run, parts = counted(thrice[-1].attempt, small(comm="on"))
    assert joined([part.steps for part in parts]).step.tolist() == list(range(STEPS))
    timed = [flags_of(part, 1).count(0) for part in thrice]
    assert timed == [0, *(steps - WARMUP_STEPS for _, steps in PARTS[1:])]
    assert (run.state, run.restarts, run.lost_steps, run.steady_steps) == ("counts", 3, 0, sum(timed))
    assert run.exchange is not None
    buckets = buckets_of_run(parts, thrice[-1].attempt, [])
    assert buckets is not None
    assert buckets.start_ns.shape == (RANKS, sum(timed))


@pytest.mark.dear
def test_the_warm_up_begins_again(thrice: list[Ran]) -> None:
    """No statistic spans a restart: an attempt's first steps are warm-up, also where the run was past its own."""
    assert flags_of(thrice[0], 1) == [WARMUP] * 3
    for part in thrice[1:]:
        flags = flags_of(part, 1)
        assert flags[:5] == [WARMUP | AFTER_PAUSE, WARMUP, WARMUP, WARMUP, WARMUP | AFTER_PAUSE]
        assert set(flags[5:]) == {0}
    protocol = thrice[2].end["protocol"]
    assert (protocol["steady_from_step"], protocol["timed_steps"], protocol["pauses"]) == (38, 15, [37])
    assert protocol["stopped_by"] == "interruption"


@pytest.mark.dear
def test_an_interrupted_attempt_says_so_and_two_checkpoints_are_kept(thrice: list[Ran]) -> None:
    end = thrice[1].end
    assert (end["state"], {gate["passed"] for gate in end["gates"]}) == ("interrupted", {True})
    assert end["reason"] == "stopped by SIGUSR2, with a checkpoint after step 32; submit it again to resume from it"
    left = [file for part in thrice for file in sorted(part.attempt.glob("checkpoints/*"))]
    assert [(file.parts[-3], file.name.split(".")[0]) for file in left] == [("8.0", "00000033"), ("9.0", "00000053")]


@pytest.mark.dear
def test_buckets_are_those_of_the_middle_of_a_run(thrice: list[Ran]) -> None:
    """DDP fills them anew after the first step of a run; a run that is taken up has them so from its first step on."""

    def buckets(attempt: Path) -> dict[int, set[tuple[int, int]]]:
        found: dict[int, set[tuple[int, int]]] = {}
        with buckets_file(attempt, 1).open(newline="") as lines:
            for row in csv.DictReader(lines):
                found.setdefault(int(row["step"]), set()).add((int(row["index"]), int(row["bytes"])))
        return found

    begun, resumed = buckets(thrice[0].attempt), buckets(thrice[1].attempt)
    assert len(begun[1]) > 2
    assert begun[0] != begun[1]
    assert all(found == begun[1] for found in resumed.values())


@pytest.mark.dear
def test_a_killed_rank(tmp_path: Path, uninterrupted: list[str]) -> None:
    what = small(checkpoint_every_min=0.0003)
    killed = launch(tmp_path, what, "7", killed_in=50)
    events = [json.loads(line) for line in (killed.attempt / "events.jsonl").read_text().splitlines()]
    checkpoints = [event["step"] for event in events]
    assert {event["event"] for event in events} == {"checkpoint"}
    paused = {step for step, flags in zip(steps_of(killed, 0), flags_of(killed, 0), strict=True) if flags & AFTER_PAUSE}
    assert paused - {WARMUP_STEPS - 1} <= set(checkpoints)
    again = launch(tmp_path, what, "8")
    assert at_the_end(again) == uninterrupted
    history = again.end["history"]
    assert [part["attempt"] for part in history] == ["7.0", "8.0"]
    newest = checkpoints[-1]
    assert (history[0]["steps"], history[1]["first_step"], history[1]["steps"]) == (newest, newest, STEPS - newest)
    run, parts = counted(again.attempt, what)
    assert joined([part.steps for part in parts]).step.tolist() == list(range(STEPS))
    assert (run.state, run.restarts, run.lost_steps) == ("counts", 1, 0)


@pytest.mark.dear
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path) -> None:
    what = small(2, steps=24)
    launch(tmp_path, what, "7", stop_after=7)
    (newest,) = launch(tmp_path, what, "8", stop_after=9).attempt.glob("checkpoints/*")
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    again = launch(tmp_path, what, "9")
    resumed = again.read("launch.json")["resumed"]
    assert (resumed["attempt"], resumed["step"]) == ("7.0", 7)
    assert f"8.0/checkpoints/{newest.name} is damaged" in resumed["passed_over"][0]
    assert f"passed over: 8.0/checkpoints/{newest.name} is damaged" in again.outcomes[0].output
    assert steps_of(again, 1) == list(range(7, 24))
    assert [part["attempt"] for part in again.end["history"]] == ["7.0", "9.0"]


@pytest.mark.dear
def test_restarts_for_nothing_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = tmp_path / "requeue"
    monkeypatch.setenv("HPCDDP_REQUEUE", str(ask))
    what, requeued, reasons = small(1, steps=60), [], []
    for number, stop_after in enumerate([1, 1, 9, 1, 1, 1]):
        reasons.append(launch(tmp_path, what, str(number), stop_after=stop_after).end["reason"])
        requeued.append(ask.exists())
        ask.unlink(missing_ok=True)
    assert requeued == [True] * 5 + [False]
    assert reasons[1] == "stopped by SIGUSR2, with a checkpoint after step 1; the job is requeued and resumes from it"
    assert reasons[-1] == (
        "stopped by SIGUSR2 after one step, like the 2 attempts before it, so the job is not "
        "requeued. The time limit is too close to the start. The last checkpoint is after step 13."
    )


SHORT: dict[str, Any] = {"ranks": 1, "steps": 12}


@pytest.fixture
def stopped(tmp_path: Path) -> Ran:
    """After 8 of 12 steps; the study is in `tmp_path`."""
    return launch(tmp_path, small(**SHORT), "7", stop_after=8)


def test_a_benchmark_never_resumes(tmp_path: Path, stopped: Ran) -> None:
    what = small(**SHORT, resume=False)
    left = next(stopped.attempt.glob("checkpoints/*"))
    folder = given.job(tmp_path, what).attempt_dir("7", 0) / "checkpoints"
    folder.mkdir(parents=True)
    (folder / left.name).write_bytes(left.read_bytes())
    found = launch(tmp_path, what, "8", stop_after=8)
    assert steps_of(found, 0) == list(range(12))
    assert (found.read("launch.json")["resumed"], found.end["state"]) == (None, "done")
    assert not (found.attempt / "checkpoints").exists()


def test_what_is_left_may_be_warm_up_alone(tmp_path: Path, stopped: Ran) -> None:
    found = launch(tmp_path, small(**SHORT), "8")
    assert steps_of(found, 0) == [8, 9, 10, 11]
    assert all(flags & WARMUP for flags in flags_of(found, 0))
    assert (found.end["state"], found.end["steps"], found.end["protocol"]["timed_steps"]) == ("done", 12, 0)


def of_another_torch(_: int) -> None:
    vars(torch)["__version__"] = "1.0"


def test_other_software_is_refused(tmp_path: Path, stopped: Ran) -> None:
    found = ran(tmp_path, small(**SHORT), of_another_torch, may_fail=True, job="8")
    words = r"The newest checkpoint of .*, r1 has torch .*, but this attempt 1\.0. .* delete .*/r1/\*/checkpoints"
    assert found.codes == [1]
    assert re.search(words, found.end["reason"])


def a_step_short(_: int) -> None:
    real = vars(training_run)["train"]

    def train(*about: Any, **how: Any) -> Any:
        trained = real(*about, **how)
        return dataclasses.replace(trained, rows=trained.rows - 1)

    vars(training_run)["train"] = train


def test_steps_are_counted_as_the_run_does(tmp_path: Path, stopped: Ran) -> None:
    found = ran(tmp_path, small(**SHORT), a_step_short, may_fail=True, job="8")
    assert found.end["reason"].endswith("ended after 11 of 12 steps; the other ranks wait for it in step 11")


@pytest.mark.soak
@pytest.mark.parametrize(
    "changes",
    [
        {"ddp": Ddp(bucket_cap_mb=0.01, static_graph=True)},
        {"ddp": Ddp(bucket_cap_mb=0.01, gradient_as_bucket_view=True)},
        {"ddp": Ddp(bucket_cap_mb=0.01, compression="bf16")},
        {"accumulate": 2},
        {"precision": "fp16"},
        {"loader_workers_per_rank": 2},
    ],
    ids=str,
)
def test_other_ways_to_train(tmp_path: Path, changes: dict[str, Any]) -> None:
    point = small(steps=40)
    what = dataclasses.replace(point, workload=dataclasses.replace(point.workload, **changes))
    in_one_piece = at_the_end(launch(tmp_path / "whole", what, "7"))
    launch(tmp_path / "parts", what, "7", stop_after=17)
    assert at_the_end(launch(tmp_path / "parts", what, "8")) == in_one_piece


@pytest.mark.dear
@pytest.mark.parametrize(("parallel", "ranks", "nodes", "shards"), [("fsdp", 3, 1, 3), ("hsdp", 4, 2, 2)])
def test_a_run_goes_on_from_its_shards(tmp_path: Path, parallel: str, ranks: int, nodes: int, shards: int) -> None:
    """HSDP's second node reads what the first wrote. Ranks share rows unevenly; BatchNorm's statistics are each rank's own."""
    kind = {"optimizer": Optimizer(name="adamw", lr=0.01), "measure": {"resume": True, "checkpoint_every_min": 0.0}}
    what = of_batchnorm(ranks, nodes=nodes, parallel=parallel, **kind)
    first = launch(tmp_path / "parts", what, "7", stop_after=5)
    (folder,) = (first.attempt / "checkpoints").glob("*.shards")
    assert sorted(file.name[:5] for file in folder.iterdir()) == [f"{rank:05d}" for rank in range(shards)]
    second, plain = launch(tmp_path / "parts", what, "8"), launch(tmp_path / "plain", what, "7")
    assert second.read("launch.json")["resumed"]["step"] == int(folder.name[:8])
    assert (second.failed, plain.failed) == ({}, {})
    sums = [found.gates["parameters agree"]["evidence"].split()[-1] for found in (second, plain)]
    assert sums[0] == sums[1]
