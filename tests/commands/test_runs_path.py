"""A sweep file where a study's folder is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.core.errors import USAGE
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from tests.commands.conftest import Run


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Its content is of no matter: its name says where its runs are."""
    file = tmp_path / "mine.yaml"
    file.write_text("schema: 1\n")
    return file


def submitted(root: Path) -> Path:
    """The folder of a study of one point of which nothing has run."""
    study = Study(root / "mine")
    write_json(study.study_file, {"schema": 1, "repeat": 1, "points": [{"label": "n01"}]})
    return study.folder


@pytest.mark.parametrize("command", ["status", "clean"])
def test_it_stands_for_the_folder_of_its_runs(run: Run, sweep: Path, command: str) -> None:
    """Beside it, as where they land."""
    folder = submitted(sweep.parent)
    assert run(command, sweep).stdout == run(command, folder).stdout


def test_runs_elsewhere_are_found_as_submit_finds_them(
    run: Run, sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HPCDDP_RUNS is for all commands."""
    folder = submitted(tmp_path / "scratch")
    monkeypatch.setenv("HPCDDP_RUNS", str(tmp_path / "scratch"))
    assert run("status", sweep).stdout == run("status", folder).stdout


def test_of_a_sweep_that_was_not_submitted_the_missing_folder_is_named(run: Run, sweep: Path) -> None:
    said = run("status", sweep)
    assert said.exit_code == USAGE
    assert f"{sweep.parent / 'mine'} is not there" in said.stderr
