"""Runs that go together, as an array or in one job: in what order, how each finds its own, what becomes of the others."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcddp.backends.base import Batch, JobState, OneAllocation, Submission, job_name
from hpcddp.backends.slurm import SlurmBackend, in_arrays
from hpcddp.backends.slurm_allocation import CANCELLED, STEPS, cancel_tasks, task_state, was_started
from hpcddp.backends.slurm_commands import longest_min
from hpcddp.backends.slurm_job_files import prepare
from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.slurm_rules import SlurmRules
from hpcddp.core.errors import HpcddpError
from hpcddp.core.job_ids import base_id, each_task, slurm_id, slurm_job
from hpcddp.core.jobspec import JobSpec, spec_from_dict, spec_to_dict
from hpcddp.core.launcher import PICKLE, link_pickle, prepare_array, read_task, shared_by_all
from hpcddp.core.point import Data, Layout, Point, Workload
from hpcddp.core.run_root import Study
from hpcddp.script.job_request import User
from hpcddp.script.render import ScriptLaunch, render
from hpcddp.script.resources import job_request
from hpcddp.submit.submit import Throttle
from hpcddp.sweep.file import SlurmOptions
from tests.fake_slurm import Say, calls, stand_ins
from tests.given_plan import allocation_plan, batch_of

PROFILE = load_profile("rcc")

IN_AN_ARRAY = {"SLURM_JOB_ID": "15", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "7"}

IN_ONE_ALLOCATION = {"SLURM_JOB_ID": "15", "SLURM_STEP_ID": "2", "HPCDDP_TASK": "7"}


def request(nodes: int = 1, seed: int = 1, run: int = 1, walltime_min: int = 5) -> Submission:
    workload = Workload(model="mnist-cnn", data=Data(name="synthetic-mnist"), seed=seed)
    layout = Layout(nodes=nodes, gpus_per_node=1, node_type="v100", physical_cores_per_rank=1)
    point = Point(cluster="rcc", workload=workload, layout=layout, device="cpu")
    job = job_request(PROFILE, point, SlurmOptions(walltime_min=walltime_min), User(account="proj"))
    return Submission(
        spec=JobSpec(point=point, run=run, study="/runs/s"),
        code=Path("/runs/s/.code/0"),
        python="python3",
        walltime_min=walltime_min,
        token=f"{nodes}{seed}{run}",
        render_text=lambda launch: render(PROFILE, point, job, launch),
    )


SOME = request()


def shapes(batches: list[Batch]) -> list[list[tuple[int, int, int]]]:
    """(nodes, seed, run) of the runs of each batch."""
    return [
        [(one.spec.point.layout.nodes, one.spec.point.workload.seed, one.spec.run) for one in batch.submissions]
        for batch in batches
    ]


def test_points_of_one_shape_are_one_array() -> None:
    requests = [request(seed=seed, run=run) for run in (1, 2) for seed in (1, 2, 3)]
    (batch,) = in_arrays(requests, lambda: 1001)
    assert list(batch.submissions) == requests
    assert batch.name == "n01-g1-x6.111"


def test_repetitions_of_several_shapes_take_turns() -> None:
    requests = [request(nodes, seed, run) for run in (1, 2) for seed in (1, 2) for nodes in (1, 2)]
    expected = [[(nodes, seed, run) for seed in (1, 2)] for run in (1, 2) for nodes in (1, 2)]
    assert shapes(in_arrays(requests, lambda: 1001)) == expected


def test_what_differs_in_the_script_goes_apart() -> None:
    batches = in_arrays([request(), request(seed=2, walltime_min=6)], lambda: pytest.fail("Slurm is asked about arrays"))
    assert [batch.name for batch in batches] == [job_name(batch.submissions[0].spec.label, 1) for batch in batches]
    assert not any(batch.is_array for batch in batches)


@pytest.mark.parametrize(("most", "sizes"), [(1001, [7]), (3, [3, 3, 1]), (1, [1] * 7), (0, [1] * 7)])
def test_arrays_are_no_larger_than_slurm_takes(most: int, sizes: list[int]) -> None:
    requests = [request(seed=seed) for seed in range(1, 8)]
    backend = SlurmBackend(SlurmRules(max_array_size=most))
    batches = backend.batches(requests)
    assert [len(batch.submissions) for batch in batches] == sizes
    assert [one for batch in batches for one in batch.submissions] == requests
    assert len({batch.name for batch in batches}) == len(sizes)


def test_script_of_an_array_says_nothing_of_one_point() -> None:
    one = request()
    assert one.render_text is not None
    text = one.render_text(ScriptLaunch(command="x", array="n01-g1-x2.t"))
    assert one.spec.label not in text
    assert "mnist" not in text
    assert "#SBATCH --job-name=n01-g1-x2.t\n" in text


def test_a_task_finds_its_own_point_and_run(tmp_path: Path) -> None:
    specs = [spec_to_dict(request(seed=seed, run=2).spec) for seed in (4, 5, 6)]
    folder = tmp_path / "array"
    prepare_array(folder, specs)
    assert sorted(path.name for path in folder.iterdir()) == ["0", "1", "2", "tasks.jsonl"]
    lines = [json.loads(line) for line in (folder / "tasks.jsonl").read_text().splitlines()]
    assert [(line["run"], line["point"]["workload"]["seed"]) for line in lines] == [(2, 4), (2, 5), (2, 6)]
    found = spec_from_dict({**shared_by_all(specs[0]), **read_task(folder / "2")})
    assert found == request(seed=6, run=2).spec
    with pytest.raises(HpcddpError, match="has no task 3"):
        read_task(folder / "3")


def test_job_of_a_task_is_what_slurm_lists() -> None:
    assert slurm_job(IN_AN_ARRAY) == "12_7"
    assert slurm_job({"SLURM_JOB_ID": "15"}) == "15"
    assert slurm_job(IN_ONE_ALLOCATION) == "15+7"
    assert slurm_job({}) is None
    assert (base_id("12_7"), base_id("15+7"), base_id("15"), base_id("L0001")) == ("12", "15", "15", "L0001")
    assert (slurm_id("12_7"), slurm_id("15+7"), slurm_id("15")) == ("12_7", "15", "15")


@pytest.mark.parametrize(
    ("listed", "tasks"),
    [("12_[0-2,5%3]", [0, 1, 2, 5]), ("12_[0-6:3]", [0, 3, 6]), ("12_[4]", [4]), ("12_7", [7])],
)
def test_tasks_that_share_a_line_are_told_apart(listed: str, tasks: list[int]) -> None:
    assert each_task(listed) == [f"12_{task}" for task in tasks]
    assert each_task("12") == ["12"]


@pytest.mark.parametrize(
    ("env", "name"),
    [(IN_AN_ARRAY, "12_7"), (IN_ONE_ALLOCATION, "15"), ({"SLURM_JOB_ID": "15"}, "15")],
)
def test_pickle_is_where_submitit_looks(tmp_path: Path, env: dict[str, str], name: str) -> None:
    folder = tmp_path / "7" if len(env) > 1 else tmp_path
    folder.mkdir(exist_ok=True)
    (tmp_path / PICKLE).write_text("the pickle")
    for _ in range(2):
        link_pickle(folder, env)
    link = folder / f"{name}_submitted.pkl"
    assert (link.read_text(), link.readlink().is_absolute()) == ("the pickle", False)


def test_folders_and_attempts_of_tasks(tmp_path: Path) -> None:
    study = Study(tmp_path)
    assert study.job_dir("12_7") == study.job_dir("12+7") == study.job_dir("12") / "7" == study.jobs / "12" / "7"
    names = ["9_11.0", "12_2.0", "12_2.1", "12_10.0", "13.0", "14+2.1"]
    for name in reversed(names):
        (study.run_dir("p", 1) / name).mkdir(parents=True)
    assert [attempt.name for attempt in study.attempts("p", 1)] == names


def placed(throttle: Throttle, runs: int, job: str) -> tuple[int | None, tuple[str, ...]]:
    """How many at once, and after what; it is then submitted as `job`."""
    batch = throttle.place(Batch(submissions=tuple(request(seed=seed) for seed in range(1, runs + 1))))
    throttle.took(batch, [job])
    return batch.at_once, batch.after


def test_without_a_limit_nothing_waits_and_serial_is_one_chain() -> None:
    throttle = Throttle(None, ["7"])
    assert [placed(throttle, 3, "8_0"), placed(throttle, 1, "9")] == [(None, ()), (None, ())]
    throttle = Throttle(1, ["5", "6_0", "6_1"])
    expected = [(1, ("5", "6")), (1, ("7",)), (1, ("8",))]
    assert [placed(throttle, 1, "7"), placed(throttle, 3, "8_0"), placed(throttle, 1, "9")] == expected


def test_at_most_two_at_a_time() -> None:
    throttle = Throttle(2, [])
    assert [placed(throttle, 1, "1"), placed(throttle, 1, "2"), placed(throttle, 1, "3")] == [(1, ()), (1, ()), (1, ("1",))]
    assert [placed(throttle, 5, "4_0"), placed(throttle, 1, "5")] == [(2, ("2", "3")), (1, ("4",))]
    throttle = Throttle(2, ["5", *(f"6_{task}" for task in range(5))])
    assert [placed(throttle, 1, "7"), placed(throttle, 1, "8")] == [(1, ("5", "6"))] * 2


def test_runs_in_one_allocation_take_one_slot() -> None:
    throttle = Throttle(2, [])
    allocation = OneAllocation(nodes=4, gpus_per_node=0, preflight=request(), render_text=lambda *_: "")
    batch = throttle.place(Batch(submissions=(request(), request(seed=2)), one_allocation=allocation))
    throttle.took(batch, ["6+0", "6+1"])
    assert batch.after == ()
    assert [placed(throttle, 1, "7"), placed(throttle, 1, "8")] == [(1, ()), (1, ("6",))]


@given(
    slots=st.integers(1, 4),
    live=st.lists(st.integers(1, 4), max_size=4),
    new=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    chance=st.randoms(use_true_random=False),
)
def test_never_more_at_a_time_than_slots(slots: int, live: list[int], new: list[int], chance: Random) -> None:
    running = [f"{job}_{task}" if tasks > 1 else str(job) for job, tasks in enumerate(live, start=1) for task in range(tasks)]
    chance.shuffle(running)
    placing = Throttle(slots, running)
    free = slots - len(running)
    waiting: list[tuple[Batch, str]] = []
    for number, runs in enumerate(new, start=100):
        batch = placing.place(Batch(submissions=(SOME,) * runs))
        placing.took(batch, [f"{number}_0" if runs > 1 else str(number)])
        waiting.append((batch, str(number)))
        assert not (free > 0 and batch.after and sum(new[: number - 99]) <= free)
    left = {job: len(batch.submissions) for batch, job in waiting}
    while running or any(left.values()):
        for batch, job in waiting:
            awaited = {*map(base_id, running), *(other for other in left if left[other])} & {*batch.after}
            while not awaited and left[job] and sum(base_id(other) == job for other in running) < (batch.at_once or 0):
                left[job] -= 1
                running.append(f"{job}_{left[job]}")
                assert len(running) <= slots
        running.pop(chance.randrange(len(running)))


RUNNING = JobState(phase="running", nodes="gn[01-02]")
WAITS = JobState(phase="queued", detail="required nodes are busy (Resources)")
TIMEOUT = JobState(phase="failed", detail="it reached its time limit (TIMEOUT)", word="TIMEOUT")
NOT_STARTED = JobState(phase="queued", detail="waits for earlier runs of its job")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a job of four runs: 0 is done, 1 has failed, 2 runs, 3 was not started yet."""
    for task in range(4):
        (tmp_path / str(task)).mkdir()
    write_events(tmp_path, ("begun", None), ("started", 0), ("ended", 0, 0), ("started", 1), ("ended", 1, 7), ("started", 2))
    return tmp_path


def write_events(folder: Path, *events: tuple[object, ...]) -> None:
    with (folder / STEPS).open("a") as lines:
        for event in events:
            lines.write(json.dumps(dict(zip(("event", "task", "code", "word", "limit_min"), event, strict=False))) + "\n")


def states(folder: Path, job: JobState) -> list[JobState]:
    return [task_state(folder / str(task), job) for task in range(4)]


def test_while_the_job_runs(folder: Path) -> None:
    ended = [JobState(phase="done", nodes=RUNNING.nodes)]
    ended += [JobState(phase="failed", detail="exit code 7 (FAILED)", nodes=RUNNING.nodes, word="FAILED")]
    assert states(folder, RUNNING) == [*ended, RUNNING, NOT_STARTED]
    assert [state.phase for state in states(folder, WAITS)[:2]] == ["done", "failed"]
    assert states(folder, WAITS)[2:] == [WAITS, WAITS]
    write_events(folder, ("begun", None))
    assert states(folder, RUNNING)[2:] == [NOT_STARTED, NOT_STARTED]
    write_events(folder, ("started", 2))
    assert states(folder, RUNNING)[2:] == [RUNNING, NOT_STARTED]


def test_when_the_job_is_over(folder: Path) -> None:
    assert [state.phase for state in states(folder, TIMEOUT)[:2]] == ["done", "failed"]
    assert states(folder, TIMEOUT)[1].word == "FAILED"
    assert states(folder, TIMEOUT)[2:] == [TIMEOUT, TIMEOUT]
    assert [was_started(folder / str(task)) for task in range(4)] == [True, True, True, False]
    write_events(folder, ("ended", 2, 1, "TIMEOUT", 30))
    found = task_state(folder / "2", RUNNING)
    assert (found.detail, found.word, found.time_limit) == ("it reached its time limit (TIMEOUT)", "TIMEOUT", "30:00")


def test_a_cancelled_run_does_not_wait(folder: Path) -> None:
    assert not cancel_tasks(folder, [2])
    assert [state.phase for state in states(folder, RUNNING)[2:]] == ["running", "queued"]
    assert cancel_tasks(folder, [3])
    assert task_state(folder / "3", RUNNING).detail == "cancelled before it started"
    assert [(folder / str(task) / CANCELLED).exists() for task in range(4)] == [False, False, True, True]
    write_events(folder, ("ended", 2, 137))
    assert task_state(folder / "2", RUNNING).word == "CANCELLED"


def test_a_job_that_wrote_no_event(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    assert task_state(tmp_path / "0", RUNNING) == NOT_STARTED
    assert task_state(tmp_path / "0", WAITS) == WAITS
    (tmp_path / STEPS).write_text('{"event":"started","ta')
    assert task_state(tmp_path / "0", RUNNING) == NOT_STARTED
    assert not was_started(tmp_path / "0")


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    return stand_ins(tmp_path, monkeypatch, ("squeue", "sacct", "scancel", "scontrol"), "exit 0")


@pytest.fixture
def jobs(tmp_path: Path, say: Say) -> dict[str, str]:
    """Three runs in job 12, which runs, by id and name: 0 is done, 1 at work in step 12.3, 2 to come."""
    study = Study(tmp_path / "study")
    batch = batch_of(allocation_plan(tmp_path, "repeat=1"), study.folder)
    prepare(study.jobs / batch.name, batch)
    study.job_dir("12").symlink_to(batch.name)
    events = ['"started","task":0', '"ended","task":0,"code":0', '"started","task":1']
    (study.job_dir("12") / STEPS).write_text("".join(f'{{"event":{each}}}\n' for each in events))
    row = f"printf '%s\\037' 12 {batch.name} RUNNING None gn01 {study.jobs}/{batch.name}; echo"
    step = f"printf '%s\\037%s\\n' 12.batch batch 12.3 {batch.submissions[1].name}"
    say("squeue", f'[[ " $* " == *" -s "* ]] && {{ {step}; exit; }}\n{row}')
    return {f"12+{task}": batch.name for task in range(3)}


def backend(tmp_path: Path) -> SlurmBackend:
    return SlurmBackend(SlurmRules(), Study(tmp_path / "study"))


def test_one_question_for_all_runs_of_a_job(tmp_path: Path, jobs: dict[str, str]) -> None:
    found = backend(tmp_path).poll(jobs)
    assert {job: state.phase for job, state in found.items()} == dict.fromkeys(jobs, "running")
    assert len(calls(tmp_path, "squeue")) == 1
    assert backend(tmp_path).poll({"12+0": "another's"})["12+0"].detail == "Slurm no longer lists this job"


@pytest.mark.parametrize(
    ("tasks", "ended"), [([2], []), ([1], ["scancel 12.3"]), ([1, 2], ["scancel 12"])], ids=["waits", "at work", "all left"]
)
def test_what_is_cancelled_with_some_runs(tmp_path: Path, jobs: dict[str, str], tasks: list[int], ended: list[str]) -> None:
    backend(tmp_path).cancel({f"12+{task}": jobs[f"12+{task}"] for task in tasks})
    assert calls(tmp_path, "scancel") == ended
    marked = [task for task in range(3) if (tmp_path / "study" / ".jobs" / "12" / str(task) / CANCELLED).exists()]
    assert marked == tasks


def test_how_long_a_job_may_be(say: Say) -> None:
    say("scontrol", "echo PartitionName=a Default=NO MaxTime=01:00:00; echo PartitionName=b Default=YES MaxTime=7-00:00:00")
    assert (longest_min("a"), longest_min(None)) == (60, 10080)
    say("scontrol", "echo PartitionName=a Default=NO MaxTime=UNLIMITED")
    assert (longest_min("a"), longest_min(None)) == (None, None)
    say("scontrol", "exit 1")
    assert longest_min("a") is None
