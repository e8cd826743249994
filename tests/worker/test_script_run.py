"""A run whose loop is in a script of the user's own: real ranks over gloo, and scripts that do not do their part."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from hpcddp.analysis.study.load import load_study
from hpcddp.core.jobspec import ScriptPlace, spec_to_dict
from hpcddp.core.point import Layout, Measure, Point, Workload
from hpcddp.core.run_root import Study
from hpcddp.core.study_files import describe_point
from hpcddp.study.diagnosis import BY_SENTENCE
from hpcddp.study.progress import read_progress
from hpcddp.worker.faults import fault_of
from hpcddp.worker.main import run
from hpcddp.worker.ranks import Rank
from tests.worker import forked, given

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


def as_job(job: str, spec: dict[str, Any]) -> Any:
    """The spec, in a job of that number."""
    os.environ["HPCDDP_JOB"] = job
    return run(spec)


def outcomes(folder: Path, what: Point, text: str, job: str = "7") -> list[forked.Outcome]:
    """How each rank ended that ran this script; the study is in the folder."""
    study, script = Study(folder / "study"), folder / "train.py"
    script.write_text(HEAD + text)
    describe_point(study, what)
    spec = given.job(study.folder, what, script=ScriptPlace(file=str(script), folder=str(folder)))
    return forked.ranks(folder / "output", what.ranks, as_job, job, spec_to_dict(spec), nodes=what.layout.nodes)


def attempt_of(folder: Path, what: Point, job: str = "7") -> Path:
    return given.job(folder / "study", what).attempt_dir(job, 0)


def why(folder: Path, what: Point) -> str:
    """Of a run that failed."""
    (run,) = load_study(Study(folder / "study")).runs
    assert run.state == "missing"
    return str(run.reason)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Point, list[forked.Outcome]]:
    """Two ranks on two nodes; the script says what it was given."""
    folder, what = tmp_path_factory.mktemp("done"), point(2, nodes=2, measure={"comm": "on"}, args={"depth": 3, "amp": True})
    text = PLAIN + "print(sys.argv, sys.path[0], os.getcwd(), {n: v for n, v in os.environ.items() if n in NAMES})\nsys.exit(0)\n"
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "HPCDDP_CLUSTER")
    return folder, what, outcomes(folder, what, f"NAMES = {names}\n{text}")


def test_the_run_counts(done: tuple[Path, Point, list[forked.Outcome]]) -> None:
    """With the point of its sweep, completed by what its objects say; warm-up and steps are the sweep's."""
    folder, what, ended = done
    assert [each.code for each in ended] == [0, 0], ended
    (found,) = load_study(Study(folder / "study")).runs
    assert (found.state, found.reason, found.steady_steps) == ("counts", None, 8)
    assert found.exchange is not None
    assert found.point is not None
    assert found.point.id == what.id
    workload = found.point.workload
    assert (workload.model, workload.batch_per_gpu, workload.parallel) == ("train:Linear", 4, "ddp")
    launch = json.loads((attempt_of(folder, what) / "launch.json").read_text())
    assert launch["script"]["samples_per_step"] == 4
    assert len(launch["versions"]["train.py"]) == 12
    assert {"parameters agree", "ranks stepped equally"} <= set(launch["gates"])
    assert json.loads((attempt_of(folder, what) / "transport.json").read_text())["library"] == "gloo"


def test_its_rate_is_of_the_samples_that_it_says(done: tuple[Path, Point, list[forked.Outcome]]) -> None:
    """The sweep does not say them: launch.json does, while the run goes on, too."""
    folder, what, _ = done
    attempt, known = attempt_of(folder, what), dataclasses.replace(what.workload, samples_per_step=4, batch_per_gpu=4)
    found = read_progress(attempt, what)
    assert found.samples_per_s is not None
    assert found == read_progress(attempt, dataclasses.replace(what, workload=known))
    copied = folder / "without launch" / attempt.name
    shutil.copytree(attempt, copied, ignore=shutil.ignore_patterns("launch.json"))
    assert read_progress(copied, what).samples_per_s is None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (torch.cuda.OutOfMemoryError("CUDA out of memory"), "make the script's batch smaller"),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed"), "lower num_workers of the script's DataLoader"),
    ],
)
def test_faults_name_what_a_script_has(error: Exception, words: str) -> None:
    """No batch that nobody knows, and no key of hpcddp's own loaders; the next step likewise."""
    found = fault_of(
        error, Rank(rank=0, local_rank=0, world=1, nodes=1, job="7", restart=0, host="n", master_addr="", master_port=0), point()
    )
    assert words in found.sentence
    assert any(pattern.search(found.sentence) and "workload.args" in step for pattern, step in BY_SENTENCE)


def test_the_script_is_started_as_by_torchrun(done: tuple[Path, Point, list[forked.Outcome]]) -> None:
    """Its arguments, its folder first on the path, the sweep's folder to work in, and the variables of env://."""
    folder, _, ended = done
    variables = {"RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "HPCDDP_CLUSTER": "local"}
    last = ended[1].output.splitlines()[-1]
    assert last.startswith(f"{[str(folder / 'train.py'), '--depth', '3', '--amp']} {folder} {folder} ")
    assert eval(last.partition(f"{folder} {folder} ")[2]) == variables
    assert ended[0].value["gates_passed"] is True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("in_ddp(model)\n", "train.py came to its end without a measurement: it needs `from hpcddp.probe import measure`"),
        (f"{PLAIN}{ANOTHER}", "train.py calls measure() 2 times, and a run is one measurement: leave it around one loop"),
        (f"{PLAIN}with contextlib.suppress(Exception):\n    {ANOTHER}", "train.py calls measure() 2 times"),
        ("one_loop(model, batches=iter([torch.randn(4, 8)] * 6))\n", "ended after 6 steps; it takes 12 behind the first, which"),
        ("one_loop(model, batches=iter([torch.randn(4, 8)] * 2))\n", "takes 12 behind the first, which counts nowhere, 4 of"),
        (
            "optimizer = torch.optim.SGD(model.parameters())\nwith measure(model, optimizer, samples_per_step=4):\n    pass\n",
            "its loop is `for",
        ),
        ("def step():\n    raise ValueError('no more')\n\nstep()\n", "rank 0 on node0: no more (in step, train.py line"),
        ("sys.exit(3)\n", "ended itself by exit(3)"),
        ("import no_such_module\n", "has no module `no_such_module` (in <module>, train.py line"),
    ],
)
def test_scripts_that_do_not_do_their_part(tmp_path: Path, text: str, message: str) -> None:
    """The attempt failed, with a sentence that says what to add or change; also where records were complete before."""
    what = point()
    (ended,) = outcomes(tmp_path, what, text)
    assert ended.code == 1
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
    ended = outcomes(tmp_path, what, EPOCHS + by_next + text)
    assert [each.code for each in ended] == [0, 0], ended
    assert ended[0].output.count("epoch ") == epochs
    (run,) = load_study(Study(tmp_path / "study")).runs
    assert (run.state, run.steady_steps) == ("counts", 8)


def test_the_sweeps_samples_and_the_scripts(tmp_path: Path) -> None:
    """Where both say them and they differ, both numbers are named."""
    what = point(samples_per_step=8)
    outcomes(tmp_path, what, PLAIN)
    assert "samples_per_step=4), and the sweep's workload.samples_per_step is 8: make them the same" in why(tmp_path, what)


def test_ranks_without_a_group(tmp_path: Path) -> None:
    """Several ranks that each train by themselves would measure nothing that scales."""
    what = point(2)
    outcomes(tmp_path, what, "one_loop(model)\n")
    assert "of 2 calls measure(), and it has no process group: call torch.distributed.init_process_group() first" in why(
        tmp_path, what
    )


def test_a_rank_that_dies_before_the_loop(tmp_path: Path) -> None:
    """The others wait for it in init_process_group: the ranks watch each other from before the script's first line."""
    what = point(2)
    outcomes(tmp_path, what, "if os.environ['RANK'] == '1':\n    os._exit(9)\n" + PLAIN)
    assert "rank 1 on node0" in why(tmp_path, what)


@pytest.mark.dear
def test_the_stop_rule_is_the_sweeps(tmp_path: Path) -> None:
    """By the interval of the mean, all ranks after the same step."""
    what = point(2, measure={"stop": "interval", "interval_percent": 1000.0, "max_steps": 500, "gc": "off", "warmup": "detect"})
    ended = outcomes(tmp_path, what, PLAIN)
    assert [each.code for each in ended] == [0, 0], ended
    end = json.loads((attempt_of(tmp_path, what) / "end.json").read_text())
    assert (end["protocol"]["stopped_by"], end["protocol"]["gc"], end["protocol"]["warmup"]) == ("interval", "off", "detect")
    assert {each["rows"] for each in end["ranks"]} == {end["steps"]}


def test_other_content_is_another_environment(tmp_path: Path) -> None:
    """Runs of the same point whose script, or whose module beside it, differs are never pooled."""
    ids = []
    for number, depth in enumerate((1, 2)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "own_depths.py").write_text(f"depth = {depth}\n")
        outcomes(folder, point(), "import own_depths\n" + PLAIN)
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
    """All ranks write after the same step, the attempt ends as interrupted, and another one makes the steps that are left."""
    what = point(2, measure={"resume": True, "steps": 20})
    first = outcomes(tmp_path, what, RESUMING)
    assert [each.code for each in first] == [0, 0], first
    end = json.loads((attempt_of(tmp_path, what) / "end.json").read_text())
    assert end["state"] == "interrupted"
    assert end["reason"].startswith(
        f"told to stop (SIGUSR2): there is a checkpoint after step {end['steps'] - 1}; submit it again"
    )
    (folder,) = (attempt_of(tmp_path, what) / "checkpoints").iterdir()
    assert {file.name for file in folder.iterdir()} == {"0.pt", "1.pt", "hpcddp.json"}
    second = outcomes(tmp_path, what, RESUMING, job="8")
    assert [each.code for each in second] == [0, 0], second
    assert f"loaded {folder.name}" in second[1].output
    (found,) = load_study(Study(tmp_path / "study")).runs
    assert (found.state, found.reason, found.restarts, found.lost_steps) == ("counts", None, 1, 0)
    launch = json.loads((attempt_of(tmp_path, what, "8") / "launch.json").read_text())
    assert launch["resumed"]["step"] == end["steps"]
    third = outcomes(tmp_path, what, RESUMING, job="9")
    assert "loaded" not in third[0].output, "a run that was done begins anew"


def test_a_checkpoint_of_another_script_is_not_gone_on_from(tmp_path: Path) -> None:
    """Its steps would not be of one run."""
    what = point(measure={"resume": True, "steps": 20})
    outcomes(tmp_path, what, RESUMING)
    outcomes(tmp_path, what, f"{RESUMING}# edited\n", job="8")
    assert "the script or the software is not what it was. Go back to that, or remove" in why(tmp_path, what)


def test_a_script_that_writes_no_checkpoints(tmp_path: Path) -> None:
    """What to add where the sweep asks for them."""
    what = point(measure={"resume": True})
    outcomes(tmp_path, what, PLAIN)
    assert "measure.resume is true, and only the script can write its checkpoints: give measure(..., save_checkpoint" in why(
        tmp_path, what
    )
