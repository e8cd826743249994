"""`hpcddp init`."""

from __future__ import annotations

from pathlib import Path

from tests.commands.conftest import Run


def test_lists_and_copies(run: Run, tmp_path: Path) -> None:
    """Without a name the shipped sweeps are listed; with one it is copied, never over a file."""
    assert "rcc-bigmnist" in run("init").stdout.split()
    assert run("init", "rcc-bigmnist").exit_code == 0
    (tmp_path / "rcc-bigmnist.yaml").write_text("mine")
    again = run("init", "rcc-bigmnist")
    assert again.exit_code == 2
    assert "already there" in again.stderr
    assert (tmp_path / "rcc-bigmnist.yaml").read_text() == "mine"


def test_unknown_name(run: Run) -> None:
    """An unknown sweep is refused with the nearest one."""
    result = run("init", "rcc-bigmnits")
    assert result.exit_code == 2
    assert "did you mean `rcc-bigmnist`" in result.stderr
