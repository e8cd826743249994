"""`hpcddp data stage`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.conftest import Run


def test_a_copy_is_made_and_said(run: Run, tmp_path: Path) -> None:
    """Data go to stdout; a second time nothing is left to do, and other data are refused."""
    for name in ("bigmnist.json", "train-00000.u8"):
        (tmp_path / "from").mkdir(exist_ok=True)
        (tmp_path / "from" / name).write_bytes(bytes(5000))
    result = run("data", "stage", "bigmnist", "--root", tmp_path / "from", "--out", tmp_path / "to")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"10 kB in 2 files in {tmp_path}/to; 10 kB copied at ")
    again = run("data", "stage", "bigmnist", "--root", tmp_path / "from", "--out", tmp_path / "to")
    assert again.stdout == f"10 kB in 2 files in {tmp_path}/to, 2 of which were there\n"
    (tmp_path / "to" / "train-00000.u8").write_bytes(b"other")
    refused = run("data", "stage", "bigmnist", "--root", tmp_path / "from", "--out", tmp_path / "to")
    assert refused.exit_code == 2
    assert "is there already, and is no copy of" in refused.stderr


def test_folders_have_their_variables(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a job has them, where single quotes kept them from the shell; a folder of the name `$SCRATCH` is nobody's wish."""
    monkeypatch.setenv("DISK", str(tmp_path / "disk"))
    (tmp_path / "disk" / "from").mkdir(parents=True)
    (tmp_path / "disk" / "from" / "bigmnist.json").write_bytes(bytes(10))
    done = run("data", "stage", "bigmnist", "--root", "$DISK/from", "--out", "${DISK}/to")
    assert (done.exit_code, (tmp_path / "disk/to/bigmnist.json").exists()) == (0, True), done.output
    refused = run("data", "stage", "bigmnist", "--root", "$DISK/from", "--out", "$NO_SUCH_DISK/to")
    assert (refused.exit_code, "$NO_SUCH_DISK is not set; give the folder in full" in refused.stderr) == (2, True)
