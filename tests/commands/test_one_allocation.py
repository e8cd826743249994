"""`hpcddp submit --one-allocation`: what it says before and after."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.conftest import Run
from tests.fake_backend import FakeBackend
from tests.given_one_allocation import SWEEP


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeBackend:
    """A cluster whose jobs may take two hours; small.yaml has three points of two runs, half an hour each."""
    found = FakeBackend()
    monkeypatch.setattr("hpcddp.backends.choose.make_backend", lambda *_, **__: found)
    monkeypatch.setattr("hpcddp.submit.submission_plan.longest_min", lambda partition: {"gpu": 120}[partition])
    (tmp_path / "small.yaml").write_text(SWEEP.replace("AXES", "{layout.nodes: [1, 2, 4]}"))
    return found


def test_the_job_and_its_cost_are_said_first(run: Run, backend: FakeBackend) -> None:
    """Its nodes, its time, and that every run takes all of the nodes; then its number, as one job. A second time nothing."""
    result = run("submit", "small.yaml", "--one-allocation", "-y")
    assert result.exit_code == 0, result.output
    assert (
        "one job of 4 nodes for 120 min: as long as one may take; the time of its 6 runs is 180 min, and what is left is "
        "requeued\n"
        "6 runs to submit of 6 runs, at most 12.0 node hours, 12.0 GPU hours, under"
    ) in result.stdout
    assert "submitted    1 job    100, 6 runs one after the other\n" in result.stdout
    assert "nothing to submit" in run("submit", "small.yaml", "--one-allocation", "-y").stdout
    assert len(backend.queued) == 1


def test_what_no_job_gives_is_a_usage_error(run: Run, backend: FakeBackend) -> None:
    """Said before the question, and nothing is submitted; with options that choose points, what is left may go."""
    settings = ("--set", "slurm.options=[--signal=USR2@600]")
    result = run("submit", "small.yaml", "--one-allocation", *settings, "-y")
    assert (result.exit_code, backend.queued) == (2, {}), result.output
    assert "write -J --signal=B:USR2@600" in result.stderr


def test_bench_comm_in_one_job(run: Run, backend: FakeBackend) -> None:
    """The same nodes for every layout's collectives."""
    result = run("bench", "comm", "small.yaml", "--one-allocation", "-y")
    assert "submitted    1 job    100, 2 runs one after the other\n" in result.stdout, result.output


def test_logs_of_a_run_and_of_the_job_it_shares(run: Run, backend: FakeBackend, tmp_path: Path) -> None:
    """What a job's script said before any run began is the log of each of them."""
    run("submit", "small.yaml", "--one-allocation", "-y")
    folder = tmp_path / "small" / ".jobs" / "100"
    (folder / "5").mkdir(parents=True)
    (folder / "batch.err").write_text("hpcddp: this node has no `module` command")
    (point,) = (tmp_path / "small").glob("n01-*")
    log = f"== {folder}/batch.err\nhpcddp: this node has no `module` command\n"
    assert run("logs", point).stdout == log
    (folder / "5" / "batch.err").write_text("srun: error")
    assert run("logs", point).stdout == f"== {folder}/5/batch.err\nsrun: error\n{log}"
