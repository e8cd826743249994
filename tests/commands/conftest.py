"""Commands run as a user runs them: in a folder of their own, with an empty configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from click.testing import CliRunner, Result

from tests.fake_slurm import FakeBackend

Run = Callable[..., Result]
Fake = TypeVar("Fake", bound=FakeBackend)

JOBS = Path(__file__).parents[2] / "jobs"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("render", "--cluster", "rcc")`: click's result, with stdout and stderr apart."""
    from hpcddp.cli import main

    for name in ("HPCDDP_CLUSTER", "HPCDDP_RUNS", "SBATCH_ACCOUNT", "SBATCH_RESERVATION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, [str(argument) for argument in arguments])


def refused(run: Run, *arguments: object) -> str:
    """What a command says on stderr that is not carried out: a usage error."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    return result.stderr


def use(monkeypatch: pytest.MonkeyPatch, backend: Fake) -> Fake:
    """The backend of whatever cluster a command is for."""
    monkeypatch.setattr("hpcddp.backends.choose.make_backend", lambda *_, **__: backend)
    return backend


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    return use(monkeypatch, FakeBackend())


def files(folder: Path) -> list[Path]:
    """All there are but what analysis keeps for itself of what it has read."""
    return sorted(path for path in folder.rglob("*") if ".analysis" not in path.parts)
