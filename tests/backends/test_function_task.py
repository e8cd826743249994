"""The job side of a function of the user's own; what it does on Slurm is in tests/twin/test_executor.py."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from submitit.core.utils import DelayedSubmission, JobPaths

from hpcddp.backends.function_task import FunctionEnvironment, other_python


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> FunctionEnvironment:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    return FunctionEnvironment()


class Checkpointed:
    def __init__(self) -> None:
        self.checkpoints = 0

    def __call__(self) -> None: ...

    def checkpoint(self) -> DelayedSubmission:
        self.checkpoints += 1
        return DelayedSubmission(self)


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """Handlers are put back, and SIGTERM is not ignored by who comes later, in this process or one that it starts."""
    handlers = {name: signal.getsignal(name) for name in (signal.SIGUSR2, signal.SIGTERM, signal.SIGCONT)}
    yield
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})
    for name, handler in handlers.items():
        signal.signal(name, handler)


@pytest.fixture
def delayed() -> DelayedSubmission:
    """May time out three times."""
    delayed = DelayedSubmission(Checkpointed())
    delayed.set_timeout(5, max_num_timeout=3)
    return delayed


def test_a_signal_before_the_handler_is_not_lost(
    environment: FunctionEnvironment, delayed: DelayedSubmission, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits until submitit can write a checkpoint; without that it would end the rank."""
    requeued: list[int] = []
    monkeypatch.setattr(environment, "_requeue", requeued.append)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    signal.raise_signal(signal.SIGUSR2)
    with pytest.raises(SystemExit):
        environment._handle_signals(JobPaths(tmp_path, "7"), delayed)
    assert (delayed.function.checkpoints, requeued) == (1, [2])  # type: ignore[attr-defined]
    assert (tmp_path / "7_submitted.pkl").is_file()


@pytest.mark.parametrize(("rank", "checkpoints"), [("0", 1), ("1", 0)])
def test_a_preempted_function_writes_its_checkpoint(  # noqa: PLR0913, PLR0917 - three fixtures and a table
    environment: FunctionEnvironment,
    delayed: DelayedSubmission,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rank: str,
    checkpoints: int,
) -> None:
    """At SIGTERM, which Slurm sends before SIGKILL, twice after a grace time: rank 0 does, once. The job requeues nothing."""
    monkeypatch.setenv("SLURM_PROCID", rank)
    monkeypatch.setattr(environment, "_requeue", lambda countdown: pytest.fail("the job requeues itself"))
    environment._handle_signals(JobPaths(tmp_path, "7"), delayed)
    for _ in range(2):
        signal.raise_signal(signal.SIGTERM)
    assert delayed.function.checkpoints == checkpoints  # type: ignore[attr-defined]
    assert (tmp_path / "7_submitted.pkl").is_file() == bool(checkpoints)


def test_where_no_scontrol_is_the_batch_script_requeues(
    environment: FunctionEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container: by the file for which the script looks; where no script looks it fails as submitit's own does."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HPCDDP_REQUEUE", str(tmp_path / "requeue"))
    environment._requeue(1)
    assert (tmp_path / "requeue").exists()
    monkeypatch.delenv("HPCDDP_REQUEUE")
    with pytest.raises(FileNotFoundError):
        environment._requeue(1)
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/called\n')
    scontrol.chmod(0o755)
    environment._requeue(1)
    assert (tmp_path / "called").read_text() == "requeue 7\n"


def test_another_python_is_said() -> None:
    """With the version to submit with."""
    assert "pickled by Python 3.12 and run by 3.10" in other_python("3.12", "3.10")
