"""The entry of a job: its caches, what it imports, and how a script that was submitted by hand starts it."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

import hpcddp.worker
from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import JobSpec, expanded, spec_to_dict
from hpcddp.core.launch_record import LaunchRecord
from hpcddp.core.point import point_from_dict
from hpcddp.core.schema import decode_record
from hpcddp.core.start_up import start_up
from hpcddp.worker import main
from hpcddp.worker.__main__ import read_spec
from hpcddp.worker.main import VARIABLES, node_caches, place_caches, remove_caches
from hpcddp.worker.ranks import Rank, this_rank
from tests.worker import given
from tests.worker.test_rendezvous import SLURM


@pytest.fixture
def rank() -> Rank:
    return this_rank("slurm", SLURM)


def test_all_in_a_folder_of_the_attempt(rank: Rank, tmp_path: Path) -> None:
    env = {"TMPDIR": str(tmp_path)}
    place_caches(rank, env)
    place_caches(rank, {"TMPDIR": str(tmp_path)})
    folder = tmp_path / f"hpcddp-{os.getuid()}-4711-0"
    assert {Path(env[name]).parent for name in VARIABLES} == {folder}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert node_caches(dataclasses.replace(rank, restart=1), env) != folder
    (folder / "triton").mkdir()
    remove_caches(rank, env)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("names", "expected"), [(("SLURM_TMPDIR", "TMPDIR"), "SLURM_TMPDIR"), (("TMPDIR",), "TMPDIR"), ((), None)]
)
def test_the_jobs_own_disk_comes_first(rank: Rank, tmp_path: Path, names: tuple[str, ...], expected: str | None) -> None:
    env = {name: str(tmp_path / name) for name in ("SLURM_TMPDIR", "TMPDIR")}
    for name in names:
        (tmp_path / name).mkdir()
    assert node_caches(rank, env).parent == (Path(env[expected]) if expected else Path("/tmp"))


def test_what_is_placed_already_stays(rank: Rank, tmp_path: Path) -> None:
    env = {"TMPDIR": str(tmp_path), "TRITON_CACHE_DIR": "/mine"}
    place_caches(rank, env)
    assert env["TRITON_CACHE_DIR"] == "/mine"
    assert env["MIOPEN_USER_DB_PATH"].startswith(str(tmp_path))


@pytest.mark.parametrize("kind", ["open to others", "a link", "a file"])
def test_a_folder_that_somebody_else_may_have_filled(rank: Rank, tmp_path: Path, kind: str) -> None:
    """Nothing is placed there: what lies in a cache is run."""
    env = {"TMPDIR": str(tmp_path)}
    folder = node_caches(rank, env)
    if kind == "open to others":
        folder.mkdir()
        folder.chmod(0o777)
    elif kind == "a link":
        (tmp_path / "theirs").mkdir(mode=0o700)
        folder.symlink_to("theirs")
    else:
        folder.touch()
    place_caches(rank, env)
    assert env == {"TMPDIR": str(tmp_path)}


@pytest.mark.parametrize(("device", "placed"), [("cuda", True), ("cpu", False)])
def test_a_worker_places_and_removes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Literal["cuda", "cpu"], placed: bool
) -> None:
    for name, value in {**SLURM, "SLURM_LOCALID": "0", "TMPDIR": str(tmp_path), "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    found: list[bool] = []

    def attempt(*_: Any) -> dict[str, object]:
        found.append(os.path.isdir(os.path.dirname(os.environ.get("TRITON_CACHE_DIR", "/nowhere/x"))))
        return {}

    monkeypatch.setattr(main, "_run_attempt", attempt)
    monkeypatch.setattr(main, "block_stop_signal", lambda: None)
    point = dataclasses.replace(given.point(1, steps=1), device=device)
    main.run(spec_to_dict(JobSpec(point=point, study=str(tmp_path / "study"))))
    assert found == [placed]
    assert not list(tmp_path.glob("hpcddp-*"))


STEP = {
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_JOB_ID": "815",
    "SLURM_JOB_PARTITION": "prod",
    "SLURM_JWT": "secret",
    "NCCL_SECRET_TOKEN": "secret",
    "MASTER_ADDR": "127.0.0.1",
}

ABSENT = ("numpy", "click", "jinja2", "pandas", "submitit", "yaml", "torchvision")
"""What a site's own torch may lack."""


def worker(runs: Path, spec: JobSpec | None) -> subprocess.CompletedProcess[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    spec_variable = {} if spec is None else {"HPCDDP_SPEC": json.dumps(spec_to_dict(spec))}
    env = {**os.environ, **STEP, **spec_variable, "MASTER_PORT": port, "HPCDDP_RUNS": str(runs), "OMP_NUM_THREADS": "1"}
    env["PYTHONPATH"] = str(_absent(runs / "absent"))
    return subprocess.run(
        [sys.executable, "-m", "hpcddp.worker"], env=env, capture_output=True, text=True, timeout=120, check=False
    )


def _absent(folder: Path) -> Path:
    folder.mkdir()
    for name in ABSENT:
        (folder / f"{name}.py").write_text("raise ModuleNotFoundError(f'no {__name__}')\n")
    return folder


@pytest.mark.dear
def test_a_step_of_slurm_where_there_is_torch_alone(tmp_path: Path) -> None:
    spec = JobSpec(point=given.point(1, steps=1, loader_workers_per_rank=1), study="$HPCDDP_RUNS/adhoc")
    done = worker(tmp_path, spec)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["gates_passed"] is True
    described = json.loads((tmp_path / "adhoc" / spec.label / "point.json").read_text())
    assert (described["schema"], described["id"]) == (1, spec.point.id)
    assert point_from_dict(described["point"]) == spec.point
    attempt = tmp_path / "adhoc" / spec.label / "r1" / "815.0"
    launch = json.loads((attempt / "launch.json").read_text())
    took = start_up(attempt, decode_record(LaunchRecord, launch))
    assert took is not None
    assert 0.1 < took.until_met_s < took.until_first_step_s < 120  # torch is imported in no less
    assert launch["backend"] == "slurm"
    assert launch["environment"]["SLURM_JOB_PARTITION"] == "prod"
    assert "secret" not in launch["environment"].values()


def test_without_a_spec(tmp_path: Path) -> None:
    assert "hpcddp render" in worker(tmp_path, None).stderr


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (('"rcc",', '"rcc"'), r"not JSON near `.*\"rcc\" \"workload\".*`: Expecting ',' delimiter\."),
        (('"nodes"', '"nods"'), r"unknown key `nods` in point\.layout; did you mean `nodes`\?"),
    ],
    ids=["comma", "key"],
)
def test_a_spec_that_was_edited_wrong(edit: tuple[str, str], says: str) -> None:
    text = '{"point": {"cluster": "rcc", "workload": {}, "layout": {"nodes": 2}}, "study": "s"}'
    with pytest.raises(HpcddpError, match=says):
        read_spec(text.replace(*edit))


def test_paths_with_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRATCH", "/scratch/a$b")
    assert expanded("${SCRATCH}/mnist", "data root") == "/scratch/a$b/mnist"
    with pytest.raises(HpcddpError, match=r"data root `\$NOWHERE/mnist`: \$NOWHERE is not set"):
        expanded("$NOWHERE/mnist", "data root")


HERE = Path(hpcddp.worker.__path__[0])
MODULES = sorted(".".join(("hpcddp.worker", *file.relative_to(HERE).with_suffix("").parts)) for file in HERE.rglob("*.py"))

PROGRAM = """
import importlib, sys
for name in ("numpy click jinja2 pandas matplotlib yaml submitit cloudpickle torchvision " + sys.argv[1]).split():
    sys.modules[name] = None
for name in sys.argv[2:]:
    importlib.import_module(name)
"""

LOGIN_PROGRAM = """
import sys
class Refuse:
    def find_spec(self, name, *_):
        assert name not in ("torch", "pynvml", "amdsmi"), f"{name} is imported on the login side"
sys.meta_path.insert(0, Refuse())
from hpcddp.cli import main
for command in sys.argv[1:]:
    main(command.split(), standalone_mode=False)
"""


def imports(blocked: str, modules: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PROGRAM, blocked, *modules], capture_output=True, text=True, check=False)


@pytest.mark.dear
def test_standard_library_and_torch_are_enough() -> None:
    assert len(MODULES) > 10
    found = imports("", MODULES)
    assert found.returncode == 0, found.stderr


def test_a_torch_that_does_not_load_is_found_late() -> None:
    """The entry points import without torch, so that its failure leaves a record."""
    found = imports("torch", ["hpcddp.worker.main", "hpcddp.worker.smoke", "hpcddp.worker.__main__", "hpcddp.worker.finish"])
    assert found.returncode == 0, found.stderr


def test_the_login_side_asks_no_gpu(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    first = ("clusters list", "clusters show frontier", "init --cluster lumi-g resnet50/synthetic-imagenet")
    commands = (*first, "plan lumi-g-resnet50.yaml", "render lumi-g-resnet50.yaml -o scripts", "status runs")
    done = subprocess.run(
        [sys.executable, "-c", LOGIN_PROGRAM, *commands], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "#SBATCH" in next((tmp_path / "scripts").rglob("*.sh")).read_text()
