"""A job's Python has torch and nothing else of what hpcddp needs elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import hpcddp.worker

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
    """Every module of the worker imports where the login side's libraries are missing."""
    assert len(MODULES) > 10
    found = imports("", MODULES)
    assert found.returncode == 0, found.stderr


def test_a_torch_that_does_not_load_is_found_late() -> None:
    """The entry points import without torch, so that its failure leaves a record."""
    found = imports("torch", ["hpcddp.worker.main", "hpcddp.worker.smoke", "hpcddp.worker.__main__", "hpcddp.worker.finish"])
    assert found.returncode == 0, found.stderr


def test_the_login_side_asks_no_gpu(tmp_path: Path) -> None:
    """Neither torch nor the libraries that read GPUs are imported to plan, render and look at a study of an AMD site."""
    (tmp_path / "runs").mkdir()
    first = ("clusters list", "clusters show frontier", "init --cluster lumi-g resnet50/synthetic-imagenet")
    commands = (*first, "plan lumi-g-resnet50.yaml", "render lumi-g-resnet50.yaml -o scripts", "status runs")
    done = subprocess.run(
        [sys.executable, "-c", LOGIN_PROGRAM, *commands], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "#SBATCH" in next((tmp_path / "scripts").rglob("*.sh")).read_text()
