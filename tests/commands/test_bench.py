"""`hpcddp bench comm`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.conftest import Run

JOBS = Path(__file__).parent.parent.parent / "jobs"

SWEEP = """
schema: 1
cluster: local
workload: {model: mnist-cnn, data: {name: bigmnist}}
points:
  ranks: {layout.gpus_per_node: [1, 2, 4]}
  batch: {layout.gpus_per_node: [2], workload.batch_per_gpu: [8, 16]}
device: cpu
repeat: 3
slurm: {walltime_min: 60}
"""


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(SWEEP)
    return file


def test_each_layout_once(run: Run, sweep: Path) -> None:
    """However often a layout is trained on, it is benchmarked once; a single rank is left out, and no data are asked for."""
    result = run("bench", "comm", sweep, "--dry-run")
    assert result.exit_code == 0
    assert "2 runs to submit of 2 runs, under" in result.stdout
    assert [line[:12].strip() for line in result.stdout.splitlines()[1:3]] == ["n01-g2-com", "n01-g4-com"]
    assert result.stderr.splitlines() == ["! layouts of a single rank are left out: it talks to nobody"]
    only = run("bench", "comm", sweep, "--group", "batch", "--dry-run").stdout
    assert "1 run to submit of 1 run" in only


def test_a_short_place_in_the_queue(run: Run) -> None:
    """A run asks for a quarter of an hour, whatever a training run of the sweep asks for: 2 nodes x 15 min are half an hour."""
    arguments = ("--group", "nodes", "--where", "layout.nodes == 2", "--set", "slurm.walltime_min=600", "--dry-run")
    said = run("bench", "comm", JOBS / "rcc-bigmnist.yaml", *arguments).stdout
    assert "1 run to submit of 1 run, at most 0.5 node hours" in said


def test_a_layout_without_a_sweep(run: Run, tmp_path: Path) -> None:
    """Flags say it, as with render; its runs go to ./bench-comm."""
    result = run("bench", "comm", "--cluster", "rcc", "--nodes", 2, "--gpus-per-node", 3, "--set", "account=abc", "--dry-run")
    assert (result.exit_code, "n02-g3-comm-" in result.stdout) == (0, True)
    assert f"under {tmp_path / 'bench-comm'}" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--cluster", "local"], "a single rank talks to nobody: choose layouts of two ranks or more"),
        (["small.yaml", "--nodes", "2"], "--nodes is for use without a sweep file"),
        (["--cluster", "rcc", "--group", "nodes"], "--group and --where choose among the points of a sweep file"),
        (["--cluster", "rcc", "--nodes", "40"], "rcc has 6 nodes of type v100"),
    ],
)
def test_mistakes(run: Run, sweep: Path, arguments: list[str], says: str) -> None:
    """Each is said in a sentence; exit code 2."""
    result = run("bench", "comm", *arguments, "--dry-run")
    assert (result.exit_code, says in result.stderr) == (2, True)
