"""`hpcddp submit` while the controller does not answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.backends.base import JobState
from hpcddp.core.errors import INCOMPLETE
from tests.commands.conftest import Run
from tests.fake_backend import FakeBackend
from tests.given_plan import SWEEP


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    found = FakeBackend()
    monkeypatch.setattr("hpcddp.backends.choose.make_backend", lambda *given, **more: found)
    return found


@pytest.fixture
def submitted(tmp_path: Path, run: Run, backend: FakeBackend) -> Path:
    """A sweep of four runs, all in the queue."""
    sweep = tmp_path / "small.yaml"
    sweep.write_text(SWEEP)
    first = run("submit", sweep, "-y")
    assert first.exit_code == 0, first.output
    return sweep


SILENT = JobState(phase="unknown", detail="squeue: Socket timed out on send/recv operation")


def test_runs_that_are_unknown_are_left_alone_and_named(submitted: Path, run: Run, backend: FakeBackend) -> None:
    """Nothing is submitted for them, it is not called `nothing to submit`, and it ends as incomplete with the next step."""
    backend.states = dict.fromkeys(backend.queued, SILENT)
    again = run("submit", submitted, "-y")
    assert (again.exit_code, len(backend.queued)) == (INCOMPLETE, 4)
    assert "nothing to submit" not in again.stdout
    assert again.stdout.splitlines()[-1] == "nothing submitted: nobody says what became of 4 runs"
    first, second = sorted({one.spec.label for one in backend.queued.values()})
    assert f"! 4 runs are unknown and left alone: {first} r1-2, {second} r1-2: {SILENT.detail}. Submit again" in again.stderr


def test_what_is_known_to_be_missing_goes_beside_what_is_unknown(submitted: Path, run: Run, backend: FakeBackend) -> None:
    """One run was cancelled, which is known: it is submitted again, and the rest still ends as incomplete."""
    cancelled = JobState(phase="failed", detail="cancelled (CANCELLED)", word="CANCELLED")
    backend.states = {**dict.fromkeys(backend.queued, SILENT), "100": cancelled}
    again = run("submit", submitted, "-y")
    assert (again.exit_code, len(backend.queued)) == (INCOMPLETE, 5)
    assert "! 3 runs are unknown and left alone" in again.stderr


def test_many_unknown_points_are_counted(submitted: Path, run: Run, backend: FakeBackend) -> None:
    """The first points stand for all: there may be thousands."""
    submitted.write_text(SWEEP.replace("[1, 2]", "[1, 2, 3, 4, 5]"))
    assert run("submit", submitted, "-y").exit_code == 0
    backend.states = dict.fromkeys(backend.queued, SILENT)
    assert " r1-2 and 2 points more: squeue" in run("submit", submitted, "-y").stderr
