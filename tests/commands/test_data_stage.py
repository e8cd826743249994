"""`hpcddp data stage`."""

from __future__ import annotations

from pathlib import Path

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
