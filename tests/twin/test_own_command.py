"""A command of the user's own on a real Slurm: its ranks meet by torch's variables, and the probe in it leaves a study."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcddp.analysis.study.load import load_study
from hpcddp.core.run_root import single_study
from tests.twin.twin import Twin
from tests.twin.userland import User

SCRIPT = """\
import sys

import torch
import torch.distributed as dist

from hpcddp.probe import measure

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[2]))
with measure(model, optimizer, samples_per_step=4, warmup_steps=4, steps=10) as steps:
    for samples in steps([torch.randn(4, 8)] * 99):
        loss = steps.loss(model(samples).square().mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.destroy_process_group()
"""


@pytest.mark.soak
def test_ranks_of_two_nodes_meet(rcc_twin: Twin, tmp_path: Path) -> None:
    """Two ranks on each of two nodes; the run counts, and its point is of those nodes and that command line."""
    user = User(rcc_twin, tmp_path)
    (user.home / "train.py").write_text(SCRIPT)
    layout = ("--nodes", "2", "--gpus-per-node", "2", "--set", "device=cpu", "--set", "account=proj")
    text = user.hpcddp("render", "--cluster", "rcc", *layout, "--", "python3", "train.py", "--lr", "0.1").stdout
    rcc_twin.run(["sbatch"], text=text, cwd=user.home)
    rcc_twin.wait_jobs(120)
    assert user.failures() == {}
    (run,) = load_study(single_study(user.home / "jobs")).runs
    assert (run.state, run.reason) == ("counts", None)
    assert run.point is not None
    assert (run.point.cluster, run.point.layout.nodes, run.point.ranks) == ("rcc", 2, 4)
    assert run.point.script is not None
    assert (run.point.script.name, run.point.script.arguments) == ("train.py", ("--lr", "0.1"))


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
    assert never.stdout.endswith(f"failed: never started: job {late} did not end well, and it waited for that\n")
    deadline = time.monotonic() + 240  # MinJobAge, and the minute from one clearing to the next
    while {bad, good} & set(rcc_twin.run(["squeue", "-h", "-t", "all", "-o", "%i"]).stdout.split()):
        assert time.monotonic() < deadline
        time.sleep(2)
    failed = user.hpcddp(*submit, "--after", f"{good}:{bad}", *command, exit_code=2)
    assert f"--after {bad}: it did not end well: exit code 3 (FAILED)" in failed.stderr
    assert "--after 999999: Slurm knows no such job" in user.hpcddp(*submit, "--after", "999999", *command, exit_code=2).stderr
    done = user.hpcddp(*submit, "--after", good, *command)
    assert ("ended well" in done.stdout, done.stdout.endswith("\ndone\n")) == (False, True)
