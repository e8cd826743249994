"""A run that is interrupted and taken up again trains as if it had not been: real ranks, real signals, real kills."""

from __future__ import annotations

import csv
import dataclasses
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
from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.point import Data, Ddp, Point
from hpcddp.core.records import AFTER_PAUSE, WARMUP, buckets_file, steps_file
from hpcddp.core.run_root import Study
from hpcddp.worker.main import run
from hpcddp.worker.training import preemption
from hpcddp.worker.training.trainer import Trainer
from tests.worker import forked, given

HERE = "tests.worker.test_checkpoint_resume"
RANKS, WARMUP_STEPS, STEPS = 4, 5, 200


def drawing(classes: int) -> nn.Module:
    """With what a checkpoint holds beside parameters, BatchNorm's statistics and random draws, and several buckets."""
    hidden = [part for _ in range(3) for part in (nn.Linear(48, 48), nn.ReLU())]
    begin = (nn.AdaptiveAvgPool2d(7), nn.Flatten(), nn.Linear(49, 48), nn.BatchNorm1d(48), nn.Dropout(0.3))
    return nn.Sequential(*begin, *hidden, nn.Linear(48, classes))


class Pictures(TensorDataset):
    """62 steps of 4 ranks with 4 samples each: a run of 200 steps begins four epochs."""

    classes = 10

    def __init__(self, root: str | None, split: str) -> None:
        super().__init__(*given.mnist(1000).batch(torch.arange(1000)))


def small(ranks: int = RANKS, *, steps: int = STEPS, ddp: Ddp | None = None, **measure: Any) -> Point:
    """With checkpoints where it is told to stop, and nowhere else."""
    chosen = measure if "resume" in measure else {"resume": True, "checkpoint_every_min": 0.0, **measure}
    model, source = f"{HERE}:drawing", Data(name=f"{HERE}:Pictures")
    return given.point(
        ranks,
        warmup=WARMUP_STEPS,
        steps=steps - WARMUP_STEPS,
        model=model,
        data=source,
        ddp=ddp or Ddp(bucket_cap_mb=0.01),
        measure=chosen,
    )


def attempt(job: str, spec: dict[str, Any], stop_after: int | None, killed_in: int | None) -> Any:
    """A rank's part of an attempt: told to stop, as every rank is, or one rank killed in a step of it."""
    os.environ["HPCDDP_JOB"] = job
    vars(preemption)["POLL_EVERY_S"] = 0.0  # after every step
    real_step, steps_done = Trainer.step, 0

    def step(self: Trainer, *arguments: Any) -> Any:
        nonlocal steps_done
        steps_done += 1
        if steps_done == killed_in and os.environ["SUBMITIT_LOCAL_GLOBALID"] == "2":
            os.kill(os.getpid(), signal.SIGKILL)
        loss = real_step(self, *arguments)
        if steps_done == stop_after:
            os.kill(os.getpid(), signal.SIGUSR2)
        return loss

    Trainer.step = step  # type: ignore[method-assign, assignment]
    return run(spec)


def launch(study: Path, what: Point, job: str, stop_after: int | None = None, killed_in: int | None = None) -> Path:
    """The folder of an attempt that has ended; one that is not killed ends well in all ranks."""
    spec = given.job(study, what)
    arguments = (job, spec_to_dict(spec), stop_after, killed_in)
    outcomes = forked.ranks(study / f"output{job}", what.ranks, attempt, *arguments, nodes=what.layout.nodes)
    codes = [outcome.code for outcome in outcomes]
    assert any(codes) if killed_in else not any(codes), "\n".join(outcome.output for outcome in outcomes)
    return spec.attempt_dir(job, 0)


def read(file: Path) -> Any:
    return json.loads(file.read_text())


def at_the_end(attempt: Path) -> list[str]:
    """The checksums of parameters and buffers with which a run that is done ended; all gates passed."""
    end = read(attempt / "end.json")
    assert (end["state"], [gate["name"] for gate in end["gates"] if not gate["passed"]]) == ("done", [])
    gates = {gate["name"]: gate["evidence"] for gate in end["gates"]}
    return [gates[name].split()[-1] for name in ("parameters agree", "buffers agree")]


def rows(attempt: Path, rank: int) -> list[tuple[int, int]]:
    """Step and flags of each row."""
    with steps_file(attempt, rank).open(newline="") as lines:
        return [(int(row["step"]), int(row["flags"])) for row in csv.DictReader(lines)]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Parameters and buffers after 200 steps in one piece."""
    return at_the_end(launch(tmp_path_factory.mktemp("whole"), small(), "7"))


@pytest.fixture(scope="module")
def thrice(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The attempts of a run that was told to stop in the warm-up, after it, and again: 3, 70 and 60 steps, and what was left."""
    study = tmp_path_factory.mktemp("thrice")
    interrupted = [launch(study, small(comm="on"), job, stop_after=steps) for job, steps in (("7", 3), ("8", 70), ("9", 60))]
    return [*interrupted, launch(study, small(comm="on"), "10")]


@pytest.mark.dear
def test_three_interruptions_do_not_show(thrice: list[Path], uninterrupted: list[str]) -> None:
    """Bit for bit the same parameters: momentum, BatchNorm, dropout, the order of samples, and the sums in DDP's buckets."""
    assert at_the_end(thrice[-1]) == uninterrupted


@pytest.mark.dear
def test_every_step_is_recorded_by_the_attempt_that_made_it(thrice: list[Path]) -> None:
    """Rows go on where the run was, on every rank; whose steps make up the run is said in the last end.json."""
    parts = [(0, 3), (3, 70), (73, 60), (133, 67)]
    for attempt, (first, steps) in zip(thrice, parts, strict=True):
        for rank in range(RANKS):
            assert [step for step, _ in rows(attempt, rank)] == list(range(first, first + steps))
        end = read(attempt / "end.json")
        assert (end["first_step"], end["steps"]) == (first, first + steps)
    by_attempt = zip(("7.0", "8.0", "9.0", "10.0"), parts, strict=True)
    history = [{"attempt": name, "first_step": first, "steps": steps} for name, (first, steps) in by_attempt]
    assert end["history"] == history
    launched = read(thrice[-1] / "launch.json")["resumed"]
    assert (launched["attempt"], launched["step"], launched["history"]) == ("9.0", 133, history[:3])
    assert read(thrice[0] / "launch.json")["resumed"] is None


def counted(last: Path, what: Point) -> tuple[Run, list[AttemptRecords]]:
    """The run as analysis has it, and what it took of each attempt."""
    parts = read_attempts(last, read_launch(last, what), read_training_end(last), what, [])
    blank = Run(label=what.label, run=1, state="missing", point=what)
    return load_run(Study(last.parents[2]).attempts(what.label, 1), blank, {}, []), parts


@pytest.mark.dear
def test_analysis_counts_every_step_once(thrice: list[Path]) -> None:
    """All 200; timed are those without a flag, of every attempt; the exchange is that of all of them."""
    run, parts = counted(thrice[-1], small(comm="on"))
    assert joined([part.steps for part in parts]).step.tolist() == list(range(200))
    timed = [sum(not flags for _, flags in rows(attempt, 1)) for attempt in thrice]
    assert timed == [0, 65, 55, 62]
    assert (run.state, run.restarts, run.lost_steps, run.steady_steps) == ("counts", 3, 0, sum(timed))
    assert run.exchange is not None
    buckets = buckets_of_run(parts, thrice[-1], [])
    assert buckets is not None
    assert buckets.start_ns.shape == (RANKS, sum(timed))


@pytest.mark.dear
def test_the_warm_up_begins_again(thrice: list[Path]) -> None:
    """No statistic spans a restart: an attempt's first steps are warm-up, also where the run was past its own."""
    assert [flags for _, flags in rows(thrice[0], 1)] == [WARMUP] * 3
    for attempt in thrice[1:]:
        flags = [flags for _, flags in rows(attempt, 1)]
        assert flags[:5] == [WARMUP | AFTER_PAUSE, WARMUP, WARMUP, WARMUP, WARMUP | AFTER_PAUSE]
        assert set(flags[5:]) == {0}
    protocol = read(thrice[2] / "end.json")["protocol"]
    assert (protocol["steady_from_step"], protocol["timed_steps"], protocol["pauses"]) == (78, 55, [77])
    assert protocol["stopped_by"] == "interruption"


@pytest.mark.dear
def test_an_interrupted_attempt_says_so(thrice: list[Path]) -> None:
    """Its gates are judged like any other's; here nothing requeues, and the reason says what to do."""
    end = read(thrice[1] / "end.json")
    assert (end["state"], {gate["passed"] for gate in end["gates"]}) == ("interrupted", {True})
    assert end["reason"] == "told to stop (SIGUSR2): there is a checkpoint after step 72; submit it again to go on from there"


@pytest.mark.dear
def test_two_checkpoints_are_kept(thrice: list[Path]) -> None:
    """Of the whole run; each in the folder of the attempt that wrote it."""
    left = [file for attempt in thrice for file in sorted(attempt.glob("checkpoints/*"))]
    assert [(file.parts[-3], file.name.split(".")[0]) for file in left] == [("8.0", "00000073"), ("9.0", "00000133")]


@pytest.mark.dear
def test_buckets_are_those_of_the_middle_of_a_run(thrice: list[Path]) -> None:
    """DDP fills them anew after the first step of a run; a run that is taken up has them so from its first step on."""

    def buckets(attempt: Path) -> dict[int, set[tuple[int, int]]]:
        found: dict[int, set[tuple[int, int]]] = {}
        with buckets_file(attempt, 1).open(newline="") as lines:
            for row in csv.DictReader(lines):
                found.setdefault(int(row["step"]), set()).add((int(row["index"]), int(row["bytes"])))
        return found

    begun, resumed = buckets(thrice[0]), buckets(thrice[1])
    assert len(begun[1]) > 2
    assert begun[0] != begun[1]
    assert all(found == begun[1] for found in resumed.values())


@pytest.mark.dear
def test_a_killed_rank(tmp_path: Path, uninterrupted: list[str]) -> None:
    """Without a warning: what was done since the last checkpoint is done again, and the checkpoints change nothing."""
    what = small(checkpoint_every_min=0.002)
    killed = launch(tmp_path, what, "7", killed_in=110)
    events = [json.loads(line) for line in (killed / "events.jsonl").read_text().splitlines()]
    checkpoints = [event["step"] for event in events]
    assert {event["event"] for event in events} == {"checkpoint"}
    paused = {step for step, flags in rows(killed, 0) if flags & AFTER_PAUSE}
    assert paused - {WARMUP_STEPS - 1} <= set(checkpoints)
    again = launch(tmp_path, what, "8")
    assert at_the_end(again) == uninterrupted
    history = read(again / "end.json")["history"]
    assert [part["attempt"] for part in history] == ["7.0", "8.0"]
    newest = checkpoints[-1]
    assert (history[0]["steps"], history[1]["first_step"], history[1]["steps"]) == (newest, newest, 200 - newest)
    run, parts = counted(again, what)
    assert joined([part.steps for part in parts]).step.tolist() == list(range(200))
    assert (run.state, run.restarts, run.lost_steps) == ("counts", 1, 0)


@pytest.mark.dear
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path) -> None:
    """It is said which was passed over and why; its steps are made again."""
    what = small(2, steps=24)
    launch(tmp_path, what, "7", stop_after=7)
    (newest,) = launch(tmp_path, what, "8", stop_after=9).glob("checkpoints/*")
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    attempt = launch(tmp_path, what, "9")
    resumed = read(attempt / "launch.json")["resumed"]
    assert (resumed["attempt"], resumed["step"]) == ("7.0", 7)
    assert f"8.0/checkpoints/{newest.name} is damaged" in resumed["passed_over"][0]
    assert f"passed over: 8.0/checkpoints/{newest.name} is damaged" in (tmp_path / "output9" / "0.out").read_text()
    assert [step for step, _ in rows(attempt, 1)] == list(range(7, 24))
    assert [part["attempt"] for part in read(attempt / "end.json")["history"]] == ["7.0", "9.0"]


@pytest.mark.dear
def test_restarts_for_nothing_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told to stop as it begins, an attempt makes one step and asks for a requeue, but not the third in a row: that says why. An
    attempt that gets further is followed by as many again.
    """
    ask = tmp_path / "requeue"
    monkeypatch.setenv("HPCDDP_REQUEUE", str(ask))
    what, requeued, reasons = small(1, steps=60), [], []
    for number, stop_after in enumerate([1, 1, 9, 1, 1, 1]):
        attempt = launch(tmp_path, what, str(number), stop_after=stop_after)
        reasons.append(read(attempt / "end.json")["reason"])
        requeued.append(ask.exists())
        ask.unlink(missing_ok=True)
    assert requeued == [True] * 5 + [False]
    assert reasons[1] == "told to stop (SIGUSR2): there is a checkpoint after step 1; the job is requeued and goes on from there"
    assert reasons[-1] == (
        "told to stop (SIGUSR2) as it began, and so were the 2 attempts before it: each made one step, so the job is not "
        "requeued. The time limit comes too soon after the start; there is a checkpoint after step 13"
    )


def test_a_benchmark_never_resumes(tmp_path: Path) -> None:
    """Without `resume` a checkpoint in the run's folder is left alone, and SIGUSR2 changes nothing: all steps are made."""
    what = small(1, steps=12, resume=False)
    old = launch(tmp_path, small(1, steps=12), "7", stop_after=8)
    left = next(old.glob("checkpoints/*"))
    folder = given.job(tmp_path, what).attempt_dir("7", 0) / "checkpoints"
    folder.mkdir(parents=True)
    (folder / left.name).write_bytes(left.read_bytes())
    attempt = launch(tmp_path, what, "8", stop_after=8)
    assert [step for step, _ in rows(attempt, 0)] == list(range(12))
    assert (read(attempt / "launch.json")["resumed"], read(attempt / "end.json")["state"]) == (None, "done")
    assert not (attempt / "checkpoints").exists()


def test_what_is_left_may_be_warm_up_alone(tmp_path: Path) -> None:
    """Then the attempt times nothing, and the run is done all the same."""
    launch(tmp_path, small(1, steps=12), "7", stop_after=9)
    attempt = launch(tmp_path, small(1, steps=12), "8")
    assert [(step, flags & WARMUP) for step, flags in rows(attempt, 0)] == [(9, 1), (10, 1), (11, 1)]
    end = read(attempt / "end.json")
    assert (end["state"], end["steps"], end["protocol"]["timed_steps"]) == ("done", 12, 0)


def test_other_software_is_refused(tmp_path: Path) -> None:
    """Steps of two versions are not of one run: the checkpoint's is named, and what to do."""
    launch(tmp_path, small(1, steps=12), "7", stop_after=8)
    spec = given.job(tmp_path, small(1, steps=12))
    (outcome,) = forked.ranks(tmp_path / "output8", 1, of_another_torch, spec_to_dict(spec))
    assert outcome.code == 1
    reason = read(spec.attempt_dir("8", 0) / "end.json")["reason"]
    assert re.search(
        r"the newest checkpoint of .*, r1 has torch .*, and this attempt 1\.0: .* remove .*/r1/\*/checkpoints", reason
    )


def of_another_torch(spec: dict[str, Any]) -> Any:
    vars(torch)["__version__"] = "1.0"
    return attempt("8", spec, None, None)


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
    """Each has its own first step; an interrupted run ends as one in one piece."""
    point = small(steps=40)
    what = dataclasses.replace(point, workload=dataclasses.replace(point.workload, **changes))
    in_one_piece = at_the_end(launch(tmp_path / "whole", what, "7"))
    launch(tmp_path / "parts", what, "7", stop_after=17)
    assert at_the_end(launch(tmp_path / "parts", what, "8")) == in_one_piece
