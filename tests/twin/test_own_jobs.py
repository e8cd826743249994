"""Jobs of the user's own on a real Slurm: commands, functions (hpcddp.executor), sweeps of scripts, and the probe in each."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.study.load import load_study
from hpcddp.core.run_root import single_study
from tests.twin.daemons import wait_until
from tests.twin.twin import Twin
from tests.twin.userland import User


def test_a_submitted_command_has_its_ranks_variables(rcc_twin: Twin, tmp_path: Path) -> None:
    """Two ranks on each of two nodes, in the folder of the user, all with one address; the log is where `submit` says."""
    user = User(rcc_twin, tmp_path)
    names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "SLURM_NODEID", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    echo = f"echo rank {' '.join(f'${name}' for name in names)} $PWD; echo own $OF_USER"
    layout = ("--nodes", "2", "--gpus-per-node", "2", "--set", "device=cpu", "--set", "account=proj", "--set", "env.OF_USER=a$b'")
    done = user.hpcddp("submit", "--cluster", "rcc", *layout, "-y", "--wait", "--", "bash", "-c", echo)
    assert done.stdout.endswith("\ndone\n")
    log = re.search(r"^output +(\S+)$", done.stdout, re.MULTILINE)
    assert log is not None
    lines = sorted(line.split()[1:] for line in (user.home / log[1]).read_text().splitlines() if line.startswith("rank "))
    assert (user.home / log[1]).read_text().count("own a$b'\n") == 4
    places = {(*line[-3:],) for line in lines}
    assert [line[:6] for line in lines] == [[str(rank), str(rank % 2), *[str(rank // 2)] * 2, "4", "2"] for rank in range(4)]
    assert [(len(address) > 0, 10_000 <= int(port) < 30_000, at) for address, port, at in places] == [(True, True, str(tmp_path))]


def test_it_has_the_profiles_python(rcc_twin: Twin, tmp_path: Path) -> None:
    """A venv's, with what lies beside it, on nodes whose PATH has others."""
    user = User(rcc_twin, tmp_path)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (tmp_path / "venv/bin/torchrun").symlink_to("/bin/true")
    profile = "schema: 1\nname: site\ntitle: Mine\nextends: rcc\ncompute: {python: $PWD/venv/bin/python}\n"
    (tmp_path / "site.yaml").write_text(profile)
    echo = "python -c 'import sys; print(\"prefix\", sys.prefix)'; echo beside $(command -v torchrun)"
    layout = ("--nodes", "1", "--gpus-per-node", "1", "--set", "device=cpu", "--set", "account=proj")
    done = user.hpcddp("submit", "--cluster", "./site.yaml", *layout, "-y", "--wait", "--", "bash", "-c", echo)
    (log,) = re.findall(r"^output +(\S+)$", done.stdout, re.MULTILINE)
    lines = (user.home / log).read_text().splitlines()
    assert lines == [f"prefix {tmp_path}/venv", f"beside {tmp_path}/venv/bin/torchrun"]


@pytest.mark.soak
def test_no_job_waits_for_one_that_slurm_has_forgotten(rcc_twin: Twin, tmp_path: Path) -> None:
    """Accounting has its end: failed is refused, done needs no dependency. A job that fails while awaited ends the other."""
    user, command = User(rcc_twin, tmp_path), ("-y", "--wait", "--", "true")
    cpu = ("--gpus-per-node", "1", "--set", "device=cpu", "--set", "account=proj")
    submit = ("submit", "--cluster", "rcc", "--nodes", "1", *cpu)
    bad, good, late = (
        rcc_twin.run(
            ["sbatch", "--parsable", "--account=proj", "--partition=gpu", *more, "--wrap", text], cwd=tmp_path
        ).stdout.strip()
        for text, *more in (("exit 3",), ("true",), ("exit 3", "--begin=now+10"))
    )
    never = user.hpcddp(*submit, "--after", late, *command, exit_code=1)
    assert never.stdout.endswith(f"failed: it never started: it depends on job {late}, which did not complete successfully\n")
    deadline = time.monotonic() + 240  # MinJobAge, and the minute from one clearing to the next
    while {bad, good} & set(rcc_twin.run(["squeue", "-h", "-t", "all", "-o", "%i"]).stdout.split()):
        assert time.monotonic() < deadline
        time.sleep(2)
    failed = user.hpcddp(*submit, "--after", f"{good}:{bad}", *command, exit_code=2)
    assert f"--after {bad}: the job failed: exit code 3 (FAILED)" in failed.stderr
    assert "--after 999999: Slurm has no such job" in user.hpcddp(*submit, "--after", "999999", *command, exit_code=2).stderr
    done = user.hpcddp(*submit, "--after", good, *command)
    assert ("completed successfully" in done.stdout, done.stdout.endswith("\ndone\n")) == (False, True)


MODULE = """\
import os, time
from pathlib import Path

import submitit

def place():
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK")
    return [*(int(os.environ[name]) for name in names), submitit.JobEnvironment().global_rank, os.getcwd()]

def add(a, b):
    print("adds", a, flush=True)
    return a + b

def version():
    return "as submitted"

def fail_on_rank_1():
    if os.environ["RANK"] == "1":
        raise ValueError("no such luck")
    time.sleep(600)

def wait(marker):
    Path(marker).touch()
    time.sleep(600)

class Counting(submitit.helpers.Checkpointable):
    def __init__(self):
        self.restarts = 0

    def __call__(self, marker, times):
        if self.restarts < times:
            Path(f"{marker}.{self.restarts}").touch()
            time.sleep(600)
        return self.restarts, os.environ.get("SLURM_RESTART_COUNT")

    def checkpoint(self, *arguments):
        self.restarts += 1
        return super().checkpoint(*arguments)
"""

PRELUDE = """\
import json, subprocess, time
from pathlib import Path

import hpcddp
import mine
import submitit

def executor(**parameters):
    given = {"gpus_per_node": 1, "device": "cpu", "exclusive": False, "walltime_min": 5, "account": "proj"}
    return hpcddp.executor("rcc", folder="logs", **{**given, **parameters})

"""

EVERYTHING = """\
def times_ten(x):
    return OFFSET + 10 * x

OFFSET = 1
frozen = executor(options=["--hold"]).submit(mine.version)
places = executor(nodes=2, gpus_per_node=2).submit(mine.place)
failing = executor(gpus_per_node=2).submit(mine.fail_on_rank_1)
one = executor()
added = one.map_array(mine.add, [1, 2, 3], [10, 20, 30])
with one.batch():
    batched = [one.submit(times_ten, x) for x in (4, 5)]
    try:
        batched[0].job_id
    except AttributeError as error:
        early = str(error)
try:
    executor(options=["--partition=nowhere"]).submit(mine.add, 1, 2)
except hpcddp.core.errors.RefusedError as error:
    refused = str(error)
Path("mine.py").write_text("def version(): return 'edited'\\n")
subprocess.run(["scontrol", "release", frozen.job_id], check=True)
pickles = {path.name for path in Path("logs").glob("*.pkl") if "_result" not in path.name}

print(json.dumps({
    "frozen": frozen.result(),
    "places": places.results(),
    "added": [job.result() for job in added],
    "ids": [[job.job_id for job in jobs] for jobs in (added, batched)],
    "stdout": added[2].stdout(),
    "paths": [added[2].paths.stdout.name, added[2].paths.submission_file.name, added[2].submission().args],
    "batched": [job.result() for job in batched],
    "early": early,
    "refused": refused,
    "exception": [type(failing.exception()).__name__, str(failing.exception())],
    "state": [added[0].state, added[0].done(), added[0].exception()],
    "pickles": [len(pickles), all(name.endswith("_submitted.pkl") for name in pickles)],
}))
"""

REQUEUED = """\
job = executor().submit(mine.Counting(), "at-work", 1)
plain = executor().submit(mine.wait, "waits")
while not Path("at-work.0").exists():
    time.sleep(0.1)
job._interrupt(timeout=True)
while not Path("waits").exists():
    time.sleep(0.1)
plain._interrupt(timeout=True)
preempted = executor().submit(mine.Counting(), "preempted", 1)
while not Path("preempted.0").exists():
    time.sleep(0.1)
subprocess.run(["scontrol", "requeue", preempted.job_id], check=True)
print(json.dumps({
    "result": job.result(), "logs": job.stdout(), "plain": str(plain.exception()), "preempted": preempted.result(),
}))
"""


PAGE = Path(__file__).parents[2] / "docs" / "own-jobs.md"


@pytest.fixture
def user(rcc_twin: Twin, tmp_path: Path) -> User:
    (tmp_path / "mine.py").write_text(MODULE)
    return User(rcc_twin, tmp_path)


def run(user: User, script: str) -> Any:
    """What the script prints last, as JSON; it is a file of the user's, run where they stand."""
    (user.home / "study.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "study.py"], cwd=user.home, env=user.env, capture_output=True, text=True, check=False, timeout=300
    )
    logs = "\n".join(f"{file.name}: {file.read_text()[-1500:]}" for file in sorted((user.home / "logs").glob("*_log.*")))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
    return json.loads(done.stdout.splitlines()[-1])


def test_what_was_submitted_comes_back(user: User) -> None:
    """Values and errors of each rank, from the code of submission time; arrays and batches; refusals."""
    found = run(user, PRELUDE + EVERYTHING)
    assert found["frozen"] == "as submitted"
    assert found["places"] == [[rank, rank % 2, 4, rank // 2, rank, str(user.home)] for rank in range(4)]
    assert (found["added"], found["batched"]) == ([11, 22, 33], [41, 51])
    assert [[job.partition("_")[2] for job in jobs] for jobs in found["ids"]] == [["0", "1", "2"], ["0", "1"]]
    array = found["ids"][0][0].partition("_")[0]
    assert "adds 3\n" in found["stdout"]
    assert found["paths"] == [f"{array}_2_0_log.out", f"{array}_submission.sh", [3, 30]]
    assert "forbidden" in found["early"]
    assert found["exception"][0] == "FailedJobError"
    assert "in fail_on_rank_1\n" in found["exception"][1]
    assert "ValueError: no such luck" in found["exception"][1]
    assert "has no partition" in found["refused"]
    assert "partition=NAME" in found["refused"]
    assert found["state"] == ["COMPLETED", True, None]
    assert found["pickles"] == [8, True]


def test_checkpoints_requeue_the_job(user: User) -> None:
    """What can write a checkpoint is requeued and goes on from it; what cannot ends with submitit's error."""
    found = run(user, PRELUDE + REQUEUED)
    assert (found["result"], found["preempted"]) == ([1, "1"], [1, "1"])
    assert found["logs"].count("Calling checkpoint method.") == 1
    assert "Job not requeued because: timed-out and not checkpointable." in found["plain"]
    wait_until(lambda: not list(user.home.glob("requeue.*")), [], "no file left of the requeue", 10, lambda: "")


def test_the_code_of_the_page(user: User) -> None:
    """As it stands there, on CPUs: a value of each rank, then one of each task of an array."""
    (user.home / "train.py").write_text("import os\n\ndef train(lr):\n    return lr * float(os.environ['WORLD_SIZE'])\n")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    on_cpus = code.replace("gpus_per_node=4", "gpus_per_node=2, device='cpu', exclusive=False, folder='logs'")
    assert run(user, on_cpus) == [0.1, 0.2, 0.4]
    assert len(list((user.home / "logs").glob("*_result.pkl"))) == 4 + 3


LOOP = """
import torch
import torch.distributed as dist

from hpcddp.probe import measure

def train(lr):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    with measure(model, optimizer, samples_per_step=4, warmup_steps=4, steps=10) as steps:
        for samples in steps([torch.randn(4, 8)] * 99):
            loss = steps.loss(model(samples).square().mean())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()
"""

MEASURED = """
import json
import hpcddp
import loop

executor = hpcddp.executor("rcc", nodes=2, gpus_per_node=2, device="cpu", folder="logs/%j")
jobs = [executor.submit(loop.train, lr=lr) for lr in (0.1, 0.2)]
print(json.dumps([job.results() for job in jobs]))
"""


@pytest.mark.soak
def test_the_probe_in_a_function(user: User) -> None:
    """The ranks of two nodes meet and are measured; other arguments are another point, of the same script."""
    (user.home / "loop.py").write_text(LOOP)
    run(user, MEASURED)
    runs = load_study(single_study(user.home / "jobs")).runs
    assert [(run.state, run.reason) for run in runs] == [("counts", None)] * 2
    scripts = [run.point.script for run in runs if run.point is not None and run.point.ranks == 4]
    assert sorted((script.name, script.arguments) for script in scripts if script is not None) == [
        ("loop.py", ("train", f"--lr={lr}")) for lr in (0.1, 0.2)
    ]
