"""slurmctld's own word on jobs that ended is what sacct says of them, where it knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backends.fake_slurm import PATIENCE_S
from tests.twin.completions import completions
from tests.twin.twin import Twin


def test_the_completion_log_says_what_sacct_says(rcc_twin: Twin, tmp_path: Path) -> None:
    """Of a job with a name to be mistaken, and of every task of an array."""
    submit = ["sbatch", "--parsable", "--account=proj", "--partition=gpu"]
    named = rcc_twin.run([*submit, "--job-name=it's JobState=x", "--wrap", "exit 3"], cwd=tmp_path).stdout.strip()
    array = rcc_twin.run([*submit, "--array=0-1", "--wrap", "sleep 1"], cwd=tmp_path).stdout.strip()
    rcc_twin.wait_jobs(PATIENCE_S)
    logged = completions(rcc_twin.folder)
    rows = {row["JobID"]: row for row in rcc_twin.sacct()}
    for job in (named, f"{array}_0", f"{array}_1"):
        assert logged[job] == {name: rows[job][name] for name in logged[job]}
    assert (logged[named]["State"], logged[named]["ExitCode"]) == ("FAILED", "3:0")


def test_a_job_that_slurmdbd_missed_is_told(rcc_twin: Twin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """sacct has it as running for good: the twin's answer is the controller's."""
    job = rcc_twin.run(
        ["sbatch", "--parsable", "--account=proj", "--partition=gpu", "--wrap", "exit 3"], cwd=tmp_path
    ).stdout.strip()
    rcc_twin.wait_jobs(PATIENCE_S)
    run = rcc_twin.run

    def forgetful(command: list[str], **how: object) -> object:
        done = run(command, **how)  # type: ignore[arg-type]
        if command[0] == "sacct":
            lines = [_running(line) if line.startswith(f"{job}\x1f") else line for line in done.stdout.splitlines()]
            done.stdout = "\n".join(lines)
        return done

    monkeypatch.setattr(rcc_twin, "run", forgetful)
    row = next(row for row in rcc_twin.sacct() if row["JobID"] == job)
    assert (row["JobName"], row["State"], row["ExitCode"]) == ("wrap", "FAILED", "3:0")
    assert row["End"] != "Unknown"


def test_waiting_ends_only_when_sacct_has_the_end(rcc_twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job may end between two looks at the queue: that it is not there any more does not say that sacct knows."""
    run, commands = rcc_twin.run, []

    def run_noting(command: list[str], **how: object) -> object:
        done = run(command, **how)  # type: ignore[arg-type]
        commands.append(command[0])
        if commands == ["squeue"]:
            done.stdout = "1"
        return done

    monkeypatch.setattr(rcc_twin, "run", run_noting)
    rcc_twin.wait_jobs(PATIENCE_S)
    assert "sacct" in commands


def _running(line: str) -> str:
    job, _, _, _, *rest, _ = line.split("\x1f")
    return "\x1f".join([job, "allocation", "RUNNING", "0:0", *rest, "Unknown"])
