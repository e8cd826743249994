"""A command of the user's own on a real Slurm: its ranks meet by torch's variables, and the probe in it leaves a study."""

from __future__ import annotations

import re
from pathlib import Path

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
    echo = f"echo rank {' '.join(f'${name}' for name in names)} $PWD"
    layout = ("--nodes", "2", "--gpus-per-node", "2", "--set", "device=cpu", "--set", "account=proj")
    done = user.hpcddp("submit", "--cluster", "rcc", *layout, "-y", "--wait", "--", "bash", "-c", echo)
    assert done.stdout.endswith("\ndone\n")
    log = re.search(r"^output +(\S+)$", done.stdout, re.MULTILINE)
    assert log is not None
    lines = sorted(line.split()[1:] for line in (user.home / log[1]).read_text().splitlines() if line.startswith("rank "))
    places = {(*line[-3:],) for line in lines}
    assert [line[:6] for line in lines] == [[str(rank), str(rank % 2), *[str(rank // 2)] * 2, "4", "2"] for rank in range(4)]
    assert [(len(address) > 0, 10_000 <= int(port) < 30_000, at) for address, port, at in places] == [(True, True, str(tmp_path))]
