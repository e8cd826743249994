"""What a user can mend is said in a sentence with a documented exit code, never as a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.conftest import Run

JOBS = Path(__file__).parent.parent.parent / "jobs"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["init", "local-mnist", "-o", "no/such/x.yaml"], "no/such/x.yaml: No such file or directory"),
        (["render", "--cluster", "rcc", "-o", "no/such/job.sh"], "no/such/job.sh: No such file or directory"),
        (["render", str(JOBS / "rcc-bigmnist.yaml"), "-o", "file/scripts"], "file/scripts: Not a directory"),
    ],
)
def test_file_system_says_no(run: Run, tmp_path: Path, arguments: list[str], says: str) -> None:
    """An error of the file system names the file and what is wrong with it; exit code 1."""
    (tmp_path / "file").touch()
    result = run(*arguments)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, says)


SWEEP = "schema: 1\ncluster: {cluster}\ndevice: cpu\nworkload: {{model: mnist-cnn, data: {{name: synthetic-mnist}}}}\n"


def test_cluster_file_is_found_beside_the_sweep(run: Run, tmp_path: Path) -> None:
    """`cluster: ./mine.yaml` in a sweep means the file beside it, --cluster ./mine.yaml one seen from here."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "small.yaml").write_text(SWEEP.format(cluster="./mine.yaml"))
    (tmp_path / "jobs" / "mine.yaml").write_text(
        "schema: 1\nname: mine\ntitle: Mine\nnode_types: {a: {gpus: 1}}\ndefault_node_type: a\n"
    )
    assert run("plan", "jobs/small.yaml").stdout.startswith("small on mine,")
    assert run("plan", "jobs/small.yaml", "--cluster", "./mine.yaml").exit_code == 2
    assert run("plan", "jobs/small.yaml", "--cluster", "jobs/mine.yaml").exit_code == 0


def test_sweep_without_a_cluster_takes_this_machines(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HPCDDP_CLUSTER stands in; without it the error says how to name one."""
    (tmp_path / "small.yaml").write_text(SWEEP.format(cluster="null"))
    missing = run("plan", "small.yaml")
    assert (missing.exit_code, "HPCDDP_CLUSTER" in missing.stderr) == (2, True)
    monkeypatch.setenv("HPCDDP_CLUSTER", "local")
    assert run("plan", "small.yaml").stdout.startswith("small on local,")


def test_sweep_whose_runs_have_no_place(run: Run, tmp_path: Path) -> None:
    """A sweep file without an ending is where its runs' folder would be: the error says so before anything is asked."""
    (tmp_path / "small").write_text(SWEEP.format(cluster="local"))
    result = run("submit", "small", "-y")
    assert result.exit_code == 2
    assert "small is not a folder, so no runs can go there" in result.stderr


def test_axis_without_values(run: Run, tmp_path: Path) -> None:
    """A group whose axis is empty has no points; the error says why."""
    (tmp_path / "small.yaml").write_text(SWEEP.format(cluster="local") + "points: {g: {layout.gpus_per_node: []}}\n")
    result = run("plan", "small.yaml")
    assert (result.exit_code, "an axis of a group has no values" in result.stderr) == (2, True)


def test_profile_without_node_types(run: Run, tmp_path: Path) -> None:
    """The error says what is missing from it."""
    (tmp_path / "mine.yaml").write_text("schema: 1\nname: mine\ntitle: Mine\n")
    result = run("render", "--cluster", "./mine.yaml")
    assert (result.exit_code, "the profile of mine names no node types" in result.stderr) == (2, True)


def test_runs_cannot_go_there(run: Run, tmp_path: Path) -> None:
    """A run root that cannot be written (here: a file is in the way) is named, with what to do; exit code 1."""
    (tmp_path / "small.yaml").write_text(SWEEP.format(cluster="local"))
    (tmp_path / "file").touch()
    result = run("submit", "small.yaml", "-y", "--runs", "file/runs")
    assert (result.exit_code, "file/runs/small: runs cannot go there (Not a directory); give" in result.stderr) == (1, True)
