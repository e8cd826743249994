from __future__ import annotations

import dataclasses
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hpcddp.core.errors import UsageError
from hpcddp.script.own_command import check_launcher, in_environment
from tests.script.test_render import plain_profile, write_commands


def refusal(command: str, **layout: Any) -> str:
    _, _, request = plain_profile()
    try:
        check_launcher(shlex.split(command), dataclasses.replace(request, **{"nodes": 2, "ranks_per_node": 2, **layout}))
    except UsageError as error:
        return str(error)
    return ""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Programs that say where they lie and how they were called: of an environment, and `uv` in the way of it."""
    says = 'echo "${0#"$WORK"/}" "$@"'
    write_commands(tmp_path / "env 1" / "bin", dict.fromkeys(("python", "python3", "torchrun"), says))
    write_commands(tmp_path / "bin", dict.fromkeys(("python3.11", "python", "torchrun"), says))
    write_commands(tmp_path / "bin", {"uv": f'{says}\nshift; PATH="$WORK/env 1/bin:$PATH" exec "$@"'})
    return tmp_path


@pytest.mark.parametrize(
    ("python", "command", "said"),
    [
        ('"$WORK/env 1/bin/python"', "python train.py --name 'a b'", "env 1/bin/python train.py --name a b"),
        ('"$WORK/env 1/bin/python3"', "python3 -m pkg", "env 1/bin/python3 -m pkg"),
        ('"$WORK/env 1/bin/python"', "torchrun train.py", "env 1/bin/torchrun train.py"),
        ('"$WORK/env 1/bin/python"', "bash -c 'python x.py; torchrun x.py'", "env 1/bin/python x.py\nenv 1/bin/torchrun x.py"),
        ("python3.11", "python train.py", "bin/python3.11 train.py"),
        ("python3", "python train.py", "bin/python train.py"),
        ("uv run python", "python train.py", "bin/uv run python train.py\nenv 1/bin/python train.py"),
        ("uv run python", "uv run python x.py", "bin/uv run python x.py\nenv 1/bin/python x.py"),
        ("uv run python", "torchrun train.py", "bin/uv run torchrun train.py\nenv 1/bin/torchrun train.py"),
    ],
)
def test_a_command_runs_in_the_environment(work: Path, python: str, command: str, said: str) -> None:
    text = in_environment(shlex.split(command), python)
    env = {"PATH": f"{work}/bin:{os.environ['PATH']}", "WORK": str(work)}
    assert subprocess.run(["bash", "-c", text], env=env, capture_output=True, text=True, check=True).stdout == f"{said}\n"


def test_a_container_has_its_own_path() -> None:
    text = in_environment(["accelerate", "env"], "apptainer exec --nv $IMAGE /opt/venv/bin/python3")
    assert text.startswith("apptainer exec --nv $IMAGE sh -c 'PATH=")
    assert text.endswith("' /opt/venv/bin/python3 accelerate env")


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        ("torchrun --nproc_per_node 4 train.py", "torchrun"),
        ("accelerate launch train.py", "accelerate launch"),
        ("srun python train.py", "srun"),
        ("/opt/venv/bin/torchrun train.py", "torchrun"),
        ("NCCL_DEBUG=WARN OMP_NUM_THREADS=4 deepspeed train.py", "deepspeed"),
        ("env -u X FOO=1 mpirun -np 4 python train.py", "mpirun"),
        ("uv run --with torch torchrun train.py", "torchrun"),
        ("python3.12 -u -m torch.distributed.launch train.py", "torch.distributed.launch"),
        ("conda run -n x python -m accelerate.commands.launch train.py", "accelerate.commands.launch"),
        ("timeout 600 numactl -N 0 mpiexec -n 2 ./a.out", "mpiexec"),
        ("bash -lc 'cd src && source env.sh; A=1 torchrun train.py'", "torchrun"),
        ("sh -c 'if true; then\n  exec \\\n python -m torch.distributed.run x.py\nfi'", "torch.distributed.run"),
        ("bash -euo pipefail -c 'module load x && for i in 1 2; do torchrun x.py; done'", "torchrun"),
        ("bash run.sh", "srun"),
        ("./run.sh 4", "srun"),
    ],
)
def test_a_launcher_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, launcher: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.sh").write_text("#!/bin/bash\nexport A=1  # one\nsrun \\\n  python train.py\n")
    said = refusal(command)
    assert f"`{launcher}` starts ranks" in said
    assert ("--set layout.launcher=torchrun" in said) == ("torch" in launcher)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("accelerate launch train.py", "`accelerate launch` starts ranks"),
        ("torchrun --standalone train.py", "`torchrun --standalone` on 2 nodes: each would train by itself"),
        ("torchrun --nnodes 1 train.py", "`torchrun --nnodes 1` on 2 nodes"),
        ("bash -c 'python -m torch.distributed.run --nnodes=4 train.py'", "`torch.distributed.run --nnodes=4` on 2 nodes"),
        ("torchrun --nproc_per_node 4 --nnodes=2 train.py", ""),
        ("bash -c 'torchrun train.py'", ""),
    ],
)
def test_torchrun_is_started_once_a_node(command: str, words: str) -> None:
    assert refusal(command, launcher="torchrun").startswith(words)
    assert bool(refusal(command, launcher="torchrun")) == bool(words)


@pytest.mark.parametrize(
    "command",
    [
        *("python train.py -m composer", "python train.py --launcher srun", "./train --with mpirun", "accelerate env"),
        *("python -m pkg torchrun", "bash -c 'echo srun'", f"bash {300 * 'x'}.sh"),
    ],
)
def test_a_word_is_no_launcher(command: str) -> None:
    assert refusal(command) == ""


def test_one_process_may_launch() -> None:
    """With one task in the job; srun in a step would wait for the step's own nodes."""
    assert refusal("accelerate launch train.py", nodes=1, launcher="torchrun") == ""
    assert refusal("srun train", nodes=1, launcher="torchrun").startswith("`srun` starts ranks")
