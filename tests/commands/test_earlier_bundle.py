"""The bundle of an earlier version goes through the commands of today: recorded/version-0.1.0.tar.gz, six real runs on CPUs."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

from hpcddp.cluster.yamlfile import read_yaml
from tests.commands.conftest import Run

BUNDLE = Path(__file__).parents[1] / "analysis" / "recorded" / "version-0.1.0.tar.gz"


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """The bundle as old.tar.gz, and its study's folder."""
    shutil.copy(BUNDLE, tmp_path / "old.tar.gz")
    with tarfile.open(BUNDLE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "earlier"


def test_it_is_bundled_again_and_compares_the_same(run: Run, unpacked: Path) -> None:
    """What was unpacked makes a bundle that is read: all points match, and none differs."""
    assert run("bundle", unpacked, "-o", "again.tar.gz").exit_code == 0
    result = run("compare", "old.tar.gz", "again.tar.gz")
    assert result.exit_code == 0, result.output
    assert "B trains 1.000 times as fast as A at" in result.stdout
    assert "differs   nothing that was recorded" in result.stdout


def test_its_sweep_is_written_for_today(run: Run, unpacked: Path, tmp_path: Path) -> None:
    """And may be submitted, as a dry run shows: the points are those that were measured."""
    result = run("submit", "old.tar.gz", "--cluster", "local", "--dry-run")
    assert result.exit_code == 0, result.output
    assert read_yaml(tmp_path / "earlier-local.yaml")["cluster"] == "local"
    for point in unpacked.glob("n0*"):
        assert point.name in result.stdout
    assert "6 runs to submit of 6 runs" in result.stdout


@pytest.mark.usefixtures("unpacked")
def test_a_page_can_be_made_of_it(run: Run) -> None:
    """The one for an application; what it had no records of is unknown."""
    result = run("proposal", "old.tar.gz")
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    assert "weak scaling (fixed batch per GPU)" in result.stdout


def test_status_has_its_runs_as_done(run: Run, unpacked: Path) -> None:
    """Runs on this machine take no node hours."""
    result = run("status", unpacked)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "6 runs: 6 done"), result.output
