"""Commands run as a user runs them: in a folder of their own, with an empty configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("render", "--cluster", "rcc")`: click's result, with stdout and stderr apart."""
    from hpcddp.cli import main

    for name in ("HPCDDP_CLUSTER", "HPCDDP_RUNS", "SBATCH_ACCOUNT", "SBATCH_RESERVATION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, [str(argument) for argument in arguments])


def files(folder: Path) -> list[Path]:
    """All there are but what analysis keeps for itself of what it has read."""
    return sorted(path for path in folder.rglob("*") if ".analysis" not in path.parts)
