"""Runs whose loop is in a script of the user's own: real ranks over gloo, and scripts that do not do their part."""

from __future__ import annotations

import dataclasses
import gzip
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from hpcddp.analysis.report.tables import study_tables
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import find
from hpcddp.core.jobspec import ScriptPlace
from hpcddp.core.point import Layout, Measure, Point, Workload
from hpcddp.core.records import trace_file
from hpcddp.core.run_root import Study
from hpcddp.core.study_files import describe_point
from hpcddp.study.diagnosis import BY_SENTENCE
from hpcddp.study.progress import read_progress
from hpcddp.worker.faults import fault_of
from hpcddp.worker.ranks import Rank
from tests.worker import forked, given
from tests.worker.forked import Ran, ran

HEAD = """\
import contextlib
import os
import sys

import torch
import torch.distributed as dist

from hpcddp.probe import measure

several = int(os.environ["WORLD_SIZE"]) > 1
torch.manual_seed(0)
model = torch.nn.Linear(8, 4)


def one_loop(model, samples=4, batches=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with measure(model, optimizer, samples_per_step=samples, warmup_steps=999, steps=999) as steps:
        for batch in steps(batches or [torch.randn(samples, 8)] * 999):
            loss = steps.loss(model(batch).square().mean())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def in_ddp(model):
    if several:
        dist.init_process_group("gloo")
        return torch.nn.parallel.DistributedDataParallel(model)
    return model

"""

PLAIN = "one_loop(in_ddp(model))\n"

ANOTHER = "one_loop(torch.nn.Linear(8, 2))\n"


def point(ranks: int = 1, *, nodes: int = 1, measure: dict[str, Any] | None = None, **workload: Any) -> Point:
    """Four warm-up and eight timed steps of train.py."""
    return Point(
        cluster="local",
        workload=Workload(script="train.py", **workload),
        layout=Layout(nodes=nodes, gpus_per_node=ranks // nodes),
        measure=Measure(**{"warmup_steps": 4, "steps": 8, "telemetry_hz": 0.0, **(measure or {})}),
        device="cpu",
    )


def scripted(folder: Path, what: Point, text: str, job: str = "7", *, may_fail: bool = False) -> Ran:
    study, script = Study(folder / "study"), folder / "train.py"
    script.write_text(HEAD + text)
    describe_point(study, what)
    return ran(study.folder, what, may_fail=may_fail, job=job, script=ScriptPlace(file=str(script), folder=str(folder)))


def outcomes(folder: Path, what: Point, text: str, job: str = "7") -> list[forked.Outcome]:
    return scripted(folder, what, text, job, may_fail=True).outcomes


def attempt_of(folder: Path, what: Point, job: str = "7") -> Path:
    return given.job(folder / "study", what).attempt_dir(job, 0)


def why(folder: Path, what: Point) -> str:
    (run,) = load_study(Study(folder / "study")).runs
    assert run.state == "missing"
    return str(run.reason)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Point, Ran]:
    """Two ranks on two nodes; the script says what it was given."""
    folder, what = tmp_path_factory.mktemp("done"), point(2, nodes=2, measure={"comm": "on"}, args={"depth": 3, "amp": True})
    text = PLAIN + "print(sys.argv, sys.path[0], os.getcwd(), {n: v for n, v in os.environ.items() if n in NAMES})\nsys.exit(0)\n"
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "HPCDDP_CLUSTER")
    return folder, what, scripted(folder, what, f"NAMES = {names}\n{text}")


def test_the_run_counts(done: tuple[Path, Point, Ran]) -> None:
    """With the point of its sweep, completed by what its objects say."""
    folder, what, ended = done
    (found,) = load_study(Study(folder / "study")).runs
    assert (found.state, found.reason, found.steady_steps) == ("counts", None, 8)
    assert found.exchange is not None
    assert found.point is not None
    assert found.point.id == what.id
    workload = found.point.workload
    assert (workload.model, workload.batch_per_gpu, workload.parallel) == ("train:Linear", 4, "ddp")
    launch = ended.read("launch.json")
    assert (launch["script"]["samples_per_step"], len(launch["versions"]["train.py"])) == (4, 12)
    assert {"parameters agree", "ranks stepped equally"} <= set(launch["gates"])
    assert ended.read("transport.json")["library"] == "gloo"


def test_its_rate_is_of_the_samples_that_it_says(done: tuple[Path, Point, Ran]) -> None:
    folder, what, ended = done
    known = dataclasses.replace(what.workload, samples_per_step=4, batch_per_gpu=4)
    found = read_progress(ended.attempt, what)
    assert found.samples_per_s is not None
    assert found == read_progress(ended.attempt, dataclasses.replace(what, workload=known))
    copied = folder / "without launch" / ended.attempt.name
    shutil.copytree(ended.attempt, copied, ignore=shutil.ignore_patterns("launch.json"))
    assert read_progress(copied, what).samples_per_s is None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (torch.cuda.OutOfMemoryError("CUDA out of memory"), "make the script's batch smaller"),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed"), "Lower num_workers of the script's DataLoader"),
    ],
)
def test_faults_name_what_a_script_has(error: Exception, words: str) -> None:
    found = fault_of(
        error, Rank(rank=0, local_rank=0, world=1, nodes=1, job="7", restart=0, host="n", master_addr="", master_port=0), point()
    )
    assert words in found.sentence
    assert any(pattern.search(found.sentence) and "workload.args" in step for pattern, step in BY_SENTENCE)


def test_the_script_is_started_as_by_torchrun(done: tuple[Path, Point, Ran]) -> None:
    folder, _, ended = done
    variables = {"RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "HPCDDP_CLUSTER": "local"}
    last = ended.outcomes[1].output.splitlines()[-1]
    assert last.startswith(f"{[str(folder / 'train.py'), '--depth', '3', '--amp']} {folder} {folder} ")
    assert eval(last.partition(f"{folder} {folder} ")[2]) == variables
    assert ended.outcomes[0].value["gates_passed"] is True


NO_LOOP = "optimizer = torch.optim.SGD(model.parameters())\nwith measure(model, optimizer, samples_per_step=4):\n    pass\n"
ERROR = "def step():\n    raise ValueError('no more')\n\nstep()\n"
DIES = "if os.environ['RANK'] == '1':\n    os._exit(9)\n" + PLAIN
RESUMES = point(measure={"resume": True})


@pytest.mark.parametrize(
    ("what", "text", "message"),
    [
        (point(), "in_ddp(model)\n", "train.py ended without a measurement. It needs `from hpcddp.probe import"),
        (point(), f"{PLAIN}{ANOTHER}", "train.py calls measure() 2 times, but a run is one measurement"),
        (point(), f"{PLAIN}with contextlib.suppress(Exception):\n    {ANOTHER}", "train.py calls measure() 2 times"),
        (point(), "one_loop(model, batches=iter([torch.randn(4, 8)] * 6))\n", "ended after 6 steps; it needs 12 after"),
        (point(), "one_loop(model, batches=iter([torch.randn(4, 8)] * 2))\n", "needs 12 after the untimed first one"),
        (point(), NO_LOOP, "Write its loop as `for"),
        (point(), ERROR, "rank 0 on node0: no more (in step, train.py line"),
        (point(), "sys.exit(3)\n", "called exit(3)"),
        (point(), "import no_such_module\n", "has no module `no_such_module` (in <module>, train.py line"),
        (point(samples_per_step=8), PLAIN, "=4), but the sweep's workload.samples_per_step is 8. Make them equal"),
        (point(2), "one_loop(model)\n", "but it has no process group. Call torch.distributed.init_process_group() first"),
        (point(2), DIES, "rank 1 on node0"),  # the others wait for it: ranks watch each other from before the first line
        (RESUMES, PLAIN, "resume is true, but the script writes no checkpoints. Pass measure(..., save_checkpoint"),
    ],
)
def test_scripts_that_do_not_do_their_part(tmp_path: Path, what: Point, text: str, message: str) -> None:
    """The attempt failed, also where records were complete before."""
    assert any(scripted(tmp_path, what, text, may_fail=True).codes)
    assert message in why(tmp_path, what)


EPOCHS = """\
ddp = in_ddp(model)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)

def epoch(batches, last=False):
    with measure(ddp, optimizer, samples_per_step=4) as steps:
        it = iter(steps(batches))
        for _ in range(5):
            batch = next(it) if last else next(it, None)
            if batch is None:
                break
            loss = steps.loss(ddp(batch).square().mean())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

"""


@pytest.mark.parametrize(
    ("text", "epochs"),
    [("for number in range(9):\n    epoch([torch.randn(4, 8)] * 5)\n    print('epoch', number)\n", 3), ("epoch_of_next()\n", 0)],
)
def test_an_epoch_is_no_measurement_of_its_own(tmp_path: Path, text: str, epochs: int) -> None:
    """`measure` in a function for each epoch goes on; behind all steps the script ends with the next epoch, or the next batch."""
    what = point(2, measure={"comm": "on"})
    by_next = "def epoch_of_next():\n    for number in range(9):\n        epoch([torch.randn(4, 8)] * 5, last=number > 0)\n"
    assert scripted(tmp_path, what, EPOCHS + by_next + text).outcomes[0].output.count("epoch ") == epochs
    (run,) = load_study(Study(tmp_path / "study")).runs
    assert (run.state, run.steady_steps) == ("counts", 8)


@pytest.mark.dear
def test_the_stop_rule_is_the_sweeps(tmp_path: Path) -> None:
    what = point(2, measure={"stop": "interval", "interval_percent": 1000.0, "max_steps": 500, "gc": "off", "warmup": "detect"})
    end = scripted(tmp_path, what, PLAIN).end
    assert (end["protocol"]["stopped_by"], end["protocol"]["gc"], end["protocol"]["warmup"]) == ("interval", "off", "detect")
    assert {each["rows"] for each in end["ranks"]} == {end["steps"]}


def test_other_content_is_another_environment(tmp_path: Path) -> None:
    ids = []
    for number, depth in enumerate((1, 2)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "own_depths.py").write_text(f"depth = {depth}\n")
        scripted(folder, point(), "import own_depths\n" + PLAIN)
        ids.append(load_study(Study(folder / "study")).runs[0].env_id)
    assert None not in ids
    assert ids[0] != ids[1]
    assert "own_depths" not in sys.modules


RESUMING = """\
import json
import signal
import time


def save(folder):
    torch.save(model.state_dict(), folder / f"{os.environ['RANK']}.pt")


ddp = in_ddp(model)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
with measure(ddp, optimizer, samples_per_step=4, save_checkpoint=save) as steps:
    if steps.checkpoint_dir:
        model.load_state_dict(torch.load(steps.checkpoint_dir / f"{os.environ['RANK']}.pt"))
        print("loaded", steps.checkpoint_dir.name)
    for number, batch in enumerate(steps([torch.ones(4, 8)] * 99)):
        loss = steps.loss(ddp(batch).square().mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if os.environ["HPCDDP_JOB"] == "7":
            time.sleep(0.55)
            if number == 4:
                os.kill(os.getpid(), signal.SIGUSR2)
"""
"""Ranks ask what to do after each step that takes more than half a second."""


@pytest.mark.dear
def test_a_script_that_is_told_to_stop_goes_on(tmp_path: Path) -> None:
    what = point(2, measure={"resume": True, "steps": 20})
    first = scripted(tmp_path, what, RESUMING)
    steps = first.end["steps"]
    assert first.end["state"] == "interrupted"
    assert first.end["reason"].startswith(f"stopped by SIGUSR2, with a checkpoint after step {steps - 1}; submit it again")
    (folder,) = (first.attempt / "checkpoints").iterdir()
    assert {file.name for file in folder.iterdir()} == {"0.pt", "1.pt", "hpcddp.json"}
    second = scripted(tmp_path, what, RESUMING, job="8")
    assert f"loaded {folder.name}" in second.outcomes[1].output
    (found,) = load_study(Study(tmp_path / "study")).runs
    assert (found.state, found.reason, found.restarts, found.lost_steps) == ("counts", None, 1, 0)
    assert second.read("launch.json")["resumed"]["step"] == steps
    third = scripted(tmp_path, what, RESUMING, job="9")
    assert "loaded" not in third.outcomes[0].output, "a run that was done begins anew"


def test_a_checkpoint_of_another_script_is_not_gone_on_from(tmp_path: Path) -> None:
    what = point(measure={"resume": True, "steps": 20})
    scripted(tmp_path, what, RESUMING)
    scripted(tmp_path, what, f"{RESUMING}# edited\n", job="8", may_fail=True)
    assert "the script or the software changed. Restore it, or delete" in why(tmp_path, what)


SHARDED = """\
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
for part in (model[0], model[2], model):
    fully_shard(part)
one_loop(model)
dist.destroy_process_group()
"""

TEN_BATCHES = """\
with measure(model, torch.optim.SGD(model.parameters(), lr=0.01), samples_per_step=4) as steps:
    for number, batch in enumerate(steps([torch.randn(4, 8)] * 99)):
        model(batch).sum().backward()
        if number == 15:
            break
"""


def complete(folder: Path, what: Point, text: str) -> Ran:
    found = scripted(folder, what, text)
    assert found.failed == {}
    assert [rank["rows"] for rank in found.end["ranks"]] == [12] * what.ranks
    return found


@pytest.mark.dear
def test_what_shards_exchange(tmp_path: Path) -> None:
    """Without DDP there are no buckets, and no part of the step is said to be the exchange; the profiler saw it."""
    found = complete(tmp_path, point(2, measure={"comm": "check"}), SHARDED).end["profiled_exchange"]
    assert (found["steps"], found["step_clock_exposed_s"], "all_gather" in found["by_operation_s"]) == (8, None, True)
    assert 0 < found["exposed_s"] <= found["collectives_s"] <= found["step_s"]
    records = load_study(Study(tmp_path / "study"))
    (run,) = records.runs
    assert (run.state, run.exchange, (run.part_ns or {})["comm_exposed"]) == ("counts", None, None)
    (row,) = study_tables(find(records))["profiled exchange"].rows
    assert [cell.text for cell in row][3] == "1"


def test_beside_ddps_buckets(tmp_path: Path) -> None:
    done = complete(tmp_path, point(2, measure={"comm": "check", "profile_steps": 3, "profile_ranks": (1,)}), PLAIN)
    found = done.end["profiled_exchange"]
    assert (found["steps"], found["by_operation_s"].keys()) == (8, {"all_reduce"})
    assert found["step_clock_exposed_s"] > 0
    assert [rank["bucket_rows"] for rank in done.end["ranks"]] == [12, 12]
    assert not trace_file(done.attempt, 0).exists()
    with gzip.open(trace_file(done.attempt, 1), "rt") as text:
        names = {event.get("name") for event in json.load(text)["traceEvents"]}
    assert len({name for name in names if str(name).startswith("ProfilerStep#")}) == 8


def test_a_loop_that_ends_before_them(tmp_path: Path) -> None:
    done = complete(tmp_path, point(1, measure={"profile_steps": 8}), TEN_BATCHES)
    assert "profiled_exchange" not in done.end
    assert not trace_file(done.attempt, 0).exists()
